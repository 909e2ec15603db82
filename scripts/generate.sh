#!/usr/bin/env bash
# Generates deepcopy functions and CRDs from the Go types into two folders.
# Usage: generate.sh CONTROLLER_GEN DEEPCOPY_DIR CRD_DIR
set -euo pipefail
cd "$(dirname "$0")/.."
controller_gen=$1 deepcopy_dir=$2 crd_dir=$3

"$controller_gen" object paths=./api/v1alpha1 output:object:dir="$deepcopy_dir"
"$controller_gen" crd paths=./api/v1alpha1 output:crd:dir="$crd_dir"
