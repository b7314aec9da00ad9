//go:build tools

// Package tools names the program that the harness builds from this module.
package tools

import _ "github.com/rancher/local-path-provisioner"
