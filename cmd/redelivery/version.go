package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
)

const upstream = "github.com/apache/pulsar-client-go"

// versionCommand prints the release or the commit of this build.
func versionCommand(stdout io.Writer) int {
	version, client := "unknown", "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
		if version == "" || version == "(devel)" {
			version = "(devel)"
			for _, s := range info.Settings {
				if s.Key == "vcs.revision" {
					version = s.Value
				}
			}
		}
		for _, dep := range info.Deps {
			if dep.Path == upstream {
				client = dep.Version
			}
		}
	}
	fmt.Fprintf(stdout, "redelivery %s, pulsar-client-go %s, %s\n", version, client, runtime.Version())
	return 0
}
