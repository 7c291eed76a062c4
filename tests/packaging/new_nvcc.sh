#!/bin/sh
# What an nvcc says that is new enough; it compiles nothing.
echo "Cuda compilation tools, release 12.8, V12.8.61"
