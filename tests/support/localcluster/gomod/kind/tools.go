//go:build tools

// Package tools names the program that the harness builds from this module.
package tools

import _ "sigs.k8s.io/kind"
