package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// cache is the folder in which clients of other languages are built. Commands run in the folder of this program.
const cache = ".cache"

// prepare returns the command lines of the chosen workers. left has a line about each worker that cannot be built here.
func prepare(ctx context.Context, names []string, p *progress) (programs map[string][]string, left []string,
	err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	programs = map[string][]string{}
	for _, name := range names {
		switch name {
		case "redelivery", "go":
			programs[name] = []string{self, workerArg}
			continue
		case "java", "python":
		default:
			return nil, nil, fmt.Errorf("-clients has %q, want some of redelivery, go, java, python", name)
		}
		p.say("preparing " + name)
		command, err := map[string]func(context.Context) ([]string, error){"java": prepareJava,
			"python": preparePython}[name](ctx)
		if err != nil {
			left = append(left, fmt.Sprintf("%s: %v", name, err))
			p.say(fmt.Sprintf("%s is left out: %v", name, err))
			continue
		}
		programs[name] = command
	}
	return programs, left, nil
}

func prepareJava(ctx context.Context) ([]string, error) {
	lib, err := filepath.Abs(filepath.Join(cache, "java"))
	if err != nil {
		return nil, err
	}
	err = command(ctx, "mvn", "-q", "-B", "-f", "java/pom.xml", "compile",
		"org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies",
		"-DoutputDirectory="+filepath.Join(lib, "lib"))
	if err != nil {
		return nil, err
	}
	classes := filepath.Join(lib, "classes") + string(os.PathListSeparator) + filepath.Join(lib, "lib", "*")
	return []string{"java", "-Xmx2g", "-cp", classes, "Worker"}, nil
}

func preparePython(ctx context.Context) ([]string, error) {
	venv := filepath.Join(cache, "python")
	python := filepath.Join(venv, "bin", "python")
	if _, err := os.Stat(python); err != nil {
		if err := command(ctx, "python3", "-m", "venv", venv); err != nil {
			return nil, err
		}
	}
	if err := command(ctx, python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r",
		"python/requirements.txt"); err != nil {
		return nil, err
	}
	return []string{python, "python/worker.py"}, nil
}

// command runs a command. The error has the last line that the command printed.
func command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err == nil || errors.Is(err, exec.ErrNotFound) {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return fmt.Errorf("%s: %w: %s", name, err, lines[len(lines)-1])
}
