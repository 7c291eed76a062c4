#!/bin/sh
# What an nvcc says that is too old.
echo "Cuda compilation tools, release 12.4, V12.4.99"
