// Redelivery previews redelivery policies, checks a setup before production, and manages dead letter topics.
//
//	redelivery plan -exponential 1s,10m,2
//	redelivery plan -config redelivery.yaml -consumer billing
//	redelivery dlq list public/default
//	redelivery dlq replay orders-billing-DLQ -canary 10
//	redelivery doctor -subscription billing orders
//	redelivery simulate -config redelivery.yaml -consumer billing -rate 200/s -outage 10m
//	redelivery attempts -subscription billing orders
//	redelivery ui -allow-changes
//	redelivery check run.jsonl
package main

import (
	"fmt"
	"io"
	"os"
)

const usage = `Usage: redelivery <command> [flags]

Commands:
  plan      show when a failing message comes back, and when it is a dead letter
  dlq       show, replay, export and purge dead letters
  doctor    check the broker, the topics and the consumer before production
  simulate  play an outage: calls, backlog, dead letters, time to recover
  attempts  show the failed messages in the log of attempts, or forget them
  ui        serve pages that show all this, for the browser
  check     check the history of any client: lost, early, doubled messages
  version   show the version

"redelivery <command> -h" shows the flags of a command.
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run runs a command line and returns the exit code: 0, 1 after an error, 2 if the command line is wrong.
func run(args []string, stdout, stderr io.Writer) int {
	out := &output{w: stdout}
	code := runCommand(args, out, stderr)
	if code == 0 && out.err != nil {
		fmt.Fprintf(stderr, "redelivery %s: %v\n", args[0], out.err)
		return 1
	}
	return code
}

// output remembers its first write error.
type output struct {
	w   io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

func runCommand(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	switch args[0] {
	case "plan":
		return planCommand(args[1:], stdout, stderr)
	case "dlq":
		return dlqCommand(args[1:], os.Stdin, stdout, stderr)
	case "version", "-version", "--version":
		return versionCommand(stdout)
	case "doctor":
		return doctorCommand(args[1:], stdout, stderr)
	case "simulate":
		return simulateCommand(args[1:], stdout, stderr)
	case "attempts":
		return attemptsCommand(args[1:], stdout, stderr)
	case "ui":
		return uiCommand(args[1:], stdout, stderr)
	case "check":
		return checkCommand(args[1:], os.Stdin, stdout, stderr)
	case "help", "-h", "-help", "--help":
		fmt.Fprint(stdout, usage)
		return 0
	}
	fmt.Fprintf(stderr, "redelivery: command is %q, want plan, dlq, doctor, simulate, attempts, ui, check or "+
		"version (-h shows all)\n", args[0])
	return 2
}
