package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	upstreamModule = "github.com/apache/pulsar-client-go"
	ourModule      = "github.com/pulsar-redelivery/redelivery"
)

// These files are added to the copy: to package pulsar's tests, to its external tests, and to package admin.
var (
	//go:embed testdata/inside_test.go.txt
	inside string
	//go:embed testdata/outside_test.go.txt
	outside string
	//go:embed testdata/redirect.go.txt
	redirect string
)

// module is a module as the go command lists it.
type module struct{ Dir, Version, GoMod string }

// fetch returns the module pulsar-client-go. If version is "", it takes the version of go.mod from the module cache. It
// downloads any other version, unless the module cache has it. version may also be a folder with the source.
func fetch(ctx context.Context, version string) (m module, err error) {
	if mod := filepath.Join(version, "go.mod"); version != "" {
		if _, err := os.Stat(mod); err == nil {
			return module{version, "of " + version, mod}, nil
		}
	}
	args := []string{"list", "-m", "-json", upstreamModule}
	if version != "" {
		args = []string{"mod", "download", "-json", upstreamModule + "@" + version}
	}
	out, err := goCommand(ctx, "", args...).Output()
	if err != nil {
		return m, explain(err)
	}
	if err := json.Unmarshal(out, &m); err != nil {
		return m, err
	}
	if m.Dir == "" {
		return m, fmt.Errorf("%s is not in the module cache; go mod download puts it there", upstreamModule)
	}
	return m, nil
}

func goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	return cmd
}

// explain adds a command's output to its error.
func explain(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return err
}

// prepare copies the files that the tests need from src to dir, and rewrites them. It returns the tests that subscribe
// or, with everything, all tests.
func prepare(src module, dir string, everything bool) ([]test, error) {
	for _, folder := range []string{"oauth2", "pulsar", "pulsaradmin", "integration-tests"} {
		// The copy is writable, unlike the module cache.
		if err := os.CopyFS(filepath.Join(dir, folder), os.DirFS(filepath.Join(src.Dir, folder))); err != nil {
			return nil, err
		}
	}
	suite, err := parseSuite(filepath.Join(dir, "pulsar"))
	if err != nil {
		return nil, err
	}
	for _, f := range suite.files {
		if err := os.WriteFile(f.path, f.rewritten(), 0o644); err != nil {
			return nil, err
		}
	}
	admin := filepath.Join(dir, "pulsaradmin", "pkg", "admin")
	if err := redirectConstants(filepath.Join(admin, "admin.go")); err != nil {
		return nil, err
	}
	for path, text := range map[string]string{
		filepath.Join(dir, "pulsar", "inside_redelivery_test.go"):  inside,
		filepath.Join(dir, "pulsar", "redirect_test.go"):           strings.ReplaceAll(redirect, "PACKAGE", "pulsar"),
		filepath.Join(dir, "pulsar", "outside_redelivery_test.go"): outside,
		filepath.Join(admin, "redirect.go"):                        strings.ReplaceAll(redirect, "PACKAGE", "admin"),
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	return suite.tests(everything), writeModule(src, dir)
}

// writeModule makes the copy a main module that depends on this library in the working folder.
func writeModule(src module, dir string) error {
	ours, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	mod, err := os.ReadFile(src.GoMod)
	if err != nil {
		return err
	}
	mod = fmt.Appendf(mod, "\nrequire %s v0.0.0\n\nreplace %s => %s\n", ourModule, ourModule, ours)
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), mod, 0o644); err != nil {
		return err
	}
	var sums []byte
	for _, sum := range []string{filepath.Join(src.Dir, "go.sum"), filepath.Join(ours, "go.sum")} {
		text, err := os.ReadFile(sum)
		if err != nil {
			return err
		}
		sums = append(sums, text...)
	}
	return os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o644)
}

// compile compiles the tests of package pulsar.
func compile(ctx context.Context, dir, binary string) error {
	cmd := goCommand(ctx, dir, "test", "-mod=mod", "-vet=off", "-c", "-o", binary, "./pulsar")
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("building upstream's tests: %w\n%s", err, out)
	}
	return nil
}
