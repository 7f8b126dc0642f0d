package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
)

// errUsage is an error of the command line.
type errUsage struct{ error }

// parseAll parses flags before and after the other arguments, and returns the other arguments.
func parseAll(set *flag.FlagSet, args []string) (others []string, err error) {
	for {
		if err := set.Parse(args); errors.Is(err, flag.ErrHelp) {
			return nil, err
		} else if err != nil {
			return nil, errUsage{err}
		}
		if set.NArg() == 0 {
			return others, nil
		}
		others, args = append(others, set.Arg(0)), set.Args()[1:]
	}
}

// ending has what exit prints at the end of a command.
type ending struct {
	command, usage string // usage is the text of -h
	help           string // names what -h shows, for the hint "(-h shows the flags)" of an error
	stdout, stderr io.Writer
}

// exit prints how the command ended, and returns the exit code.
func (e ending) exit(err error) int {
	var usage errUsage
	switch {
	case err == nil:
		return 0
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(e.stdout, e.usage)
		return 0
	case errors.As(err, &usage):
		// for a boolean flag, the error of package flag says only "parse error"
		text := strings.Replace(err.Error(), ": parse error", ": want true or false", 1)
		fmt.Fprintf(e.stderr, "redelivery %s: %s (-h shows %s)\n", e.command, text, e.help)
		return 2
	}
	text := err.Error()
	for _, of := range []string{"attempts: ", "deadletter: "} {
		text = strings.TrimPrefix(text, of)
	}
	for line := range strings.Lines(text) { // each line is one of the joined errors
		fmt.Fprintf(e.stderr, "redelivery %s: %s\n", e.command, clean(strings.TrimSuffix(line, "\n")))
	}
	return 1
}
