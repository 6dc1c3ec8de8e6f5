#!/bin/sh
# Make environments for the peers that the product never installs: sh benchmarks/peers.sh FOLDER
set -e
folder=${1:?usage: sh benchmarks/peers.sh FOLDER}
python3 -m venv "$folder"
"$folder/bin/pip" install --quiet numpy==2.4.6 scipy==1.17.1 scikit-learn==1.9.1 celer==0.7.4 skglm==0.5 cvxopt psutil
"$folder/bin/pip" install --quiet pyHSICLasso==1.4.2
"$folder/bin/python" -c "import celer, skglm; print('peers ready:', celer.__version__, skglm.__version__)"
