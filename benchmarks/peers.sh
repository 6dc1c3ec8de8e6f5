#!/bin/sh
# Make environments for the peers that the product never installs: sh benchmarks/peers.sh FOLDER
# Then: python -m benchmarks.elsewhere fgm_groups --peer-python FOLDER/bin/python; adelie, which needs an older NumPy, is in FOLDER/adelie/bin/python
set -e
folder=${1:?usage: sh benchmarks/peers.sh FOLDER}
python3 -m venv "$folder"
"$folder/bin/pip" install --quiet numpy==2.4.6 scipy==1.17.1 scikit-learn==1.9.1 celer==0.7.4 skglm==0.5 cvxopt psutil
"$folder/bin/pip" install --quiet pyHSICLasso==1.4.2
"$folder/bin/python" -c "import celer, skglm; print('peers ready:', celer.__version__, skglm.__version__)"
python3 -m venv "$folder/adelie"
"$folder/adelie/bin/pip" install --quiet "numpy<2" adelie==1.1.52 psutil
"$folder/adelie/bin/python" -c "import adelie; print('adelie ready:', adelie.__version__)"
