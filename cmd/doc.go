// Package cmd is the command line: one file for the commands about one thing, tables for people, --json for programs.
// It talks to a node through package client only, except for the commands that are a node.
package cmd
