<!doctype html><title>x</title>
