#!/usr/bin/env bash
%(nothing)s
# Replace the line below by commands that end with 0 only for a good change.
printf 'skip: this repository has nothing to run for %(script)s\n'
