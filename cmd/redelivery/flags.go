package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/durations"
	"github.com/pulsar-redelivery/redelivery/internal/policies"
)

const planUsage = `Usage: redelivery plan [flags]

Shows when a message that keeps failing will come back: the delay before each
redelivery, the time since the first failure, and when it becomes a dead letter.

  redelivery plan -exponential 1s,10m,2 -jitter 0.1
  redelivery plan -levels "1s 5s 10s" -max-deliveries 3
  redelivery plan -ack-timeout 10s -exponential 1s,60s
  redelivery plan -config redelivery.yaml -consumer billing

A policy for the delays of nacks, or for what is added to -ack-timeout:
  -exponential min,max,multiplier   by default 1s,10m,2
  -levels "1s 5s"                   delay levels; the last one repeats
  -fixed 1m                         the same delay each time
  -jitter 0.1                       spread each delay by this fraction
  -ack-timeout 10s                  for messages that are not settled
  -max-deliveries 5                 deliveries until it is a dead letter
Or a file, overridden by environment variables:
  -config file                      all its consumers and workers
  -consumer name                    only the consumer and worker of this name
Output:
  -redeliveries 8                   how many to show
  -json                             as JSON, in seconds
`

// planFlags has the values of the flags of redelivery plan. The usage text is written by hand, since the one that
// package flag generates would not fit a terminal.
type planFlags struct {
	exponential, levels, config, consumer string
	fixed, ackTimeout                     time.Duration
	jitter                                float64
	maxDeliveries, redeliveries           int
	json                                  bool
	given                                 map[string]bool
}

func planCommand(args []string, stdout, stderr io.Writer) int {
	var f planFlags
	set := flag.NewFlagSet("redelivery plan", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.StringVar(&f.exponential, "exponential", "", "")
	set.StringVar(&f.levels, "levels", "", "")
	set.Func("fixed", "", durationInto(&f.fixed))
	set.Func("jitter", "", shareInto(&f.jitter))
	set.Func("ack-timeout", "", durationInto(&f.ackTimeout))
	set.Func("max-deliveries", "", countInto(&f.maxDeliveries, 1, math.MaxInt))
	set.Func("config", "", fileInto(&f.config))
	set.StringVar(&f.consumer, "consumer", "", "")
	f.redeliveries = 8
	set.Func("redeliveries", "", countInto(&f.redeliveries, 1, maxRedeliveries))
	set.BoolVar(&f.json, "json", false, "")
	err := set.Parse(args)
	f.given = map[string]bool{}
	set.Visit(func(given *flag.Flag) { f.given[given.Name] = true })
	if err == nil {
		err = f.check(set.Args())
	}
	switch {
	case err == nil:
		err = f.show(stdout, stderr)
	case !errors.Is(err, flag.ErrHelp):
		err = errUsage{err}
	}
	return ending{"plan", planUsage, "the flags", stdout, stderr}.exit(err)
}

func (f *planFlags) show(stdout, stderr io.Writer) error {
	plans, workers, err := f.plans(stderr)
	switch {
	case err != nil:
		return err
	case f.json:
		return writeJSON(stdout, together(plans, workers))
	default:
		return writeCharts(stdout, plans, workers)
	}
}

// durationInto returns a function that parses a flag as time.ParseDuration does. Its error for a plain number asks for
// a unit.
func durationInto(d *time.Duration) func(string) error {
	return func(s string) (err error) {
		*d, err = time.ParseDuration(s)
		if err == nil {
			return nil
		}
		_, numberErr := strconv.ParseFloat(s, 64)
		if _, err := time.ParseDuration(s + "h"); numberErr == nil && err == nil {
			return fmt.Errorf("a unit is missing, want %ss, %sm or %sh", s, s, s)
		}
		if tooLong.MatchString(s) {
			return errors.New("want at most " + longestDuration)
		}
		return errors.New("want a duration, such as 1m30s")
	}
}

// tooLong matches a well-formed duration, which may be too long for a time.Duration.
var tooLong = regexp.MustCompile(`^([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$`)

const longestDuration = "2562047h"

// countInto returns a function that parses a flag as a whole number from low to high.
func countInto(n *int, low, high int) func(string) error {
	return func(s string) (err error) {
		*n, err = strconv.Atoi(s)
		if err == nil && *n >= low && *n <= high {
			return nil
		}
		if high == math.MaxInt {
			return fmt.Errorf("want a whole number, %d or more", low)
		}
		return fmt.Errorf("want a whole number, %d to %d", low, high)
	}
}

// fileInto returns a function that sets the name of a file. It refuses "", which a shell makes of an unset variable.
func fileInto(name *string) func(string) error {
	return func(s string) error {
		if s == "" {
			return errors.New("want a file")
		}
		*name = s
		return nil
	}
}

func numberInto(n *float64) func(string) error {
	return func(s string) (err error) {
		*n, err = strconv.ParseFloat(s, 64)
		if err != nil {
			return errors.New("want a number, such as 0.5")
		}
		return nil
	}
}

// shareInto returns a function that parses a fraction. It refuses only text that is no number, since policies.Validate
// checks the range later.
func shareInto(n *float64) func(string) error {
	return func(s string) error {
		if numberInto(n)(s) != nil {
			return errors.New("want a number from 0 to 1")
		}
		return nil
	}
}

var policyFlags = []string{"exponential", "levels", "fixed"}

func (f *planFlags) check(rest []string) error {
	var policies []string
	for _, name := range policyFlags {
		if f.given[name] {
			policies = append(policies, "-"+name)
		}
	}
	switch {
	case len(rest) > 0:
		return fmt.Errorf("argument is %q, want only flags", rest[0])
	case len(policies) > 1:
		return fmt.Errorf("%s are both given, want one policy", strings.Join(policies[:2], " and "))
	case f.given["consumer"] && f.consumer == "":
		return errors.New(`-consumer is "", want a name`)
	case f.given["config"]:
		for _, name := range append(policyFlags, "jitter", "ack-timeout", "max-deliveries") {
			if f.given[name] {
				return fmt.Errorf("-config and -%s are both given, want the file alone", name)
			}
		}
	case f.given["consumer"]:
		return errors.New("-consumer is given, want -config too")
	case len(policies) == 0 && !f.given["ack-timeout"]:
		return errors.New("no policy is given, want -exponential, -levels, -fixed, -ack-timeout or -config")
	case len(policies) == 0 && f.given["jitter"]:
		return errors.New("-jitter is given, want a policy too")
	case f.given["ack-timeout"] && durations.Wanted(f.ackTimeout, false) != "":
		return fmt.Errorf("-ack-timeout is %v, want %s", f.ackTimeout, durations.Wanted(f.ackTimeout, false))
	}
	if f.config == "" {
		_, err := f.failures()
		return err
	}
	return nil
}

func (f *planFlags) plans(stderr io.Writer) ([]plan, []workerPlan, error) {
	var cases []failure
	var workers []workerPlan
	var err error
	if f.config != "" {
		cases, workers, err = fromFile(f.config, f.consumer, stderr)
	} else {
		cases, err = f.failures()
	}
	if err != nil {
		return nil, nil, err
	}
	plans := make([]plan, len(cases))
	for i, c := range cases {
		redeliveries := f.redeliveries
		if !f.given["redeliveries"] && c.limit > 0 && c.limit <= 100 {
			redeliveries = int(c.limit) // as many as it takes until the message is a dead letter
		}
		plans[i] = newPlan(c, redeliveries)
	}
	return plans, workers, nil
}

// failures returns the failing message that the flags of a policy describe.
func (f *planFlags) failures() ([]failure, error) {
	var policy backoff.RedeliveryBackoff
	var err error
	switch {
	case f.given["exponential"]:
		policy, err = parseExponential(f.exponential)
	case f.given["levels"]:
		policy, err = backoff.ParseDelayLevels(f.levels)
	case f.given["fixed"]:
		policy = backoff.Fixed(f.fixed)
	default:
		policy = backoff.Fixed(0) // the only delay is the ack timeout
	}
	if err != nil {
		return nil, err
	}
	if f.given["jitter"] {
		policy = backoff.WithJitter(policy, f.jitter)
	}
	if err := policies.Validate(policy); err != nil {
		return nil, err
	}
	c := failure{of: nacked, policy: policy, limit: uint64(f.maxDeliveries)}
	if f.ackTimeout > 0 {
		c.of, c.timeout = timedOut, f.ackTimeout
	}
	return []failure{c}, nil
}

func parseExponential(s string) (backoff.RedeliveryBackoff, error) {
	words := append(strings.Split(s, ","), "", "")
	if len(words) > 5 {
		return nil, fmt.Errorf("-exponential is %q, want min,max,multiplier, such as 1s,10m,2", s)
	}
	var e backoff.Exponential
	var errs [3]error
	if words[0] != "" {
		e.Min, errs[0] = time.ParseDuration(words[0])
	}
	if words[1] != "" {
		e.Max, errs[1] = time.ParseDuration(words[1])
	}
	if words[2] != "" {
		e.Multiplier, errs[2] = strconv.ParseFloat(words[2], 64)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("-exponential is %q, want min,max,multiplier, such as 1s,10m,2", s)
	}
	return e, nil
}

func together(plans []plan, workers []workerPlan) []any {
	all := make([]any, 0, len(plans)+len(workers))
	for _, p := range plans {
		all = append(all, p)
	}
	for _, p := range workers {
		all = append(all, p)
	}
	return all
}
