package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// machine describes the computer that a run used, and the versions of the software.
type machine struct {
	When     time.Time `json:"when"`
	System   string    `json:"system"`
	CPU      string    `json:"cpu"`
	Cores    int       `json:"cores"`
	Load     string    `json:"load"` // before the run
	Versions []string  `json:"versions"`
}

func describeMachine(b *broker, programs map[string][]string) machine {
	m := machine{When: time.Now().UTC().Truncate(time.Second), System: runtime.GOOS + "/" + runtime.GOARCH,
		Cores: runtime.NumCPU()}
	cpuinfo, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(cpuinfo)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	load, _ := os.ReadFile("/proc/loadavg")
	m.Load, _, _ = strings.Cut(string(load), " ")
	m.Versions = append(m.Versions, runtime.Version())
	if info, ok := debug.ReadBuildInfo(); ok {
		i := slices.IndexFunc(info.Deps,
			func(d *debug.Module) bool { return d.Path == "github.com/apache/pulsar-client-go" })
		if i >= 0 {
			m.Versions = append(m.Versions, "pulsar-client-go "+info.Deps[i].Version)
		}
	}
	if resp, err := http.Get(b.admin + "/admin/v2/brokers/version"); err == nil {
		version, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		m.Versions = append(m.Versions, fmt.Sprintf("broker %s", version))
	}
	if programs["java"] != nil {
		m.Versions = append(m.Versions, "Java client "+between("java/pom.xml", "<pulsar.version>", "</pulsar.version>"))
		if out, err := exec.Command("java", "-version").CombinedOutput(); err == nil {
			line, _, _ := strings.Cut(string(out), "\n")
			m.Versions = append(m.Versions, strings.ReplaceAll(line, `"`, ""))
		}
	}
	if programs["python"] != nil {
		m.Versions = append(m.Versions, "Python client "+between("python/requirements.txt", "pulsar-client==", "\n"))
	}
	return m
}

// between returns the text of a file from the end of before to the next after.
func between(file, before, after string) string {
	data, _ := os.ReadFile(file)
	_, rest, _ := strings.Cut(string(data), before)
	value, _, _ := strings.Cut(rest, after)
	return value
}
