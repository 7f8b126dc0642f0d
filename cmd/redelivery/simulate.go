package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/config"
	"github.com/pulsar-redelivery/redelivery/internal/policies"
	"github.com/pulsar-redelivery/redelivery/internal/simulate"
	"github.com/pulsar-redelivery/redelivery/nack"
)

const simulateUsage = `Usage: redelivery simulate [flags]

Simulates an outage of a service that handlers call, with the policies of a
file: how often handlers call it, how many messages wait, how many become dead
letters, and how long the recovery takes. It simulates the policies as they are
configured, and variants with or without jitter, a pause and a retry topic. It
needs no broker. It takes seconds; a simulation that would take more than about
a minute is refused. The limits of unacknowledged messages are a broker's
defaults. It simulates a worker's concurrency and pauseOnFailure, and names the
other keys of the worker that would matter.

  redelivery simulate -config redelivery.yaml -consumer billing -rate 200/s \
    -instances 10 -handler 20ms -outage 10m

What is simulated:
  -config file, -consumer name      a consumer's policies, and the worker of the
                                    same name; default: nacks after one minute
  -rate 100/s                       messages; also 6000/m
  -instances 1                      consumers of the Shared subscription
  -concurrency 8                    handlers of each; default: the worker's
  -handler 20ms                     duration of a call, failed ones too
  -queue 1000                       ReceiverQueueSize
  -outage 10m                       how long calls fail, at most 720h
  -partial 1                        fraction of the calls that fail
  -before 1m                        time before the outage
Output:
  -svg file                         a picture of the variants that differ
  -json                             as JSON, for programs
`

// Within these limits a variant takes some seconds and less than 2 GB.
const (
	mostMessages = 10_000_000 // until the outage ends
	mostEvents   = 20_000_000
	longestTime  = 30 * 24 * time.Hour
)

// simulation is one command line of redelivery simulate.
type simulation struct {
	simulate.Setup
	config, consumer, svg string
	asJSON                bool
	given                 map[string]bool
}

// variant is the result of a simulation. Its name says which option differs.
type variant struct {
	Name string `json:"name"`
	simulate.Result
}

func simulateCommand(args []string, stdout, stderr io.Writer) int {
	s := &simulation{given: map[string]bool{}}
	err := s.parse(args)
	switch {
	case err == nil:
		err = s.run(stdout, stderr)
	case !errors.Is(err, flag.ErrHelp):
		err = errUsage{err}
	}
	return ending{"simulate", simulateUsage, "the flags", stdout, stderr}.exit(err)
}

func (s *simulation) parse(args []string) error {
	s.Setup = simulate.Setup{Rate: 100, Instances: 1, Handler: 20 * time.Millisecond, Queue: 1000, Before: time.Minute,
		Outage:  10 * time.Minute,
		Partial: 1, Tick: time.Second, MaxUnacked: 50_000, MaxTogether: 200_000, MostEvents: mostEvents}
	set := flag.NewFlagSet("redelivery simulate", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.Func("config", "", fileInto(&s.config))
	set.StringVar(&s.consumer, "consumer", "", "")
	set.Func("rate", "", rateInto(&s.Rate))
	set.Func("instances", "", countInto(&s.Instances, 1, 1000))
	set.Func("concurrency", "", countInto(&s.Concurrency, 1, 100_000))
	set.Func("handler", "", positiveInto(&s.Handler))
	set.Func("queue", "", countInto(&s.Queue, 1, math.MaxInt32))
	set.Func("outage", "", daysInto(&s.Outage))
	set.Func("partial", "", fractionInto(&s.Partial))
	set.Func("before", "", daysInto(&s.Before))
	set.StringVar(&s.svg, "svg", "", "")
	set.BoolVar(&s.asJSON, "json", false, "")
	if err := set.Parse(args); err != nil {
		return err
	}
	set.Visit(func(f *flag.Flag) { s.given[f.Name] = true })
	switch messages := s.Rate * (s.Before + s.Outage).Seconds(); {
	case set.NArg() > 0:
		return fmt.Errorf("argument is %q, want only flags", set.Arg(0))
	case s.given["config"] != s.given["consumer"]:
		return errors.New("only one of -config and -consumer is given, want both or none")
	case messages < 1:
		return fmt.Errorf("-rate, -before and -outage make %.3g messages, want at least 1", messages)
	case messages > mostMessages:
		return fmt.Errorf("-rate, -before and -outage make %.3g messages, want at most %d", messages, mostMessages)
	}
	return nil
}

// daysInto parses a duration of at most longestTime.
func daysInto(d *time.Duration) func(string) error {
	return func(s string) error {
		if err := positiveInto(d)(s); err != nil {
			return err
		}
		if *d > longestTime {
			return fmt.Errorf("want at most %.0fh", longestTime.Hours())
		}
		return nil
	}
}

// rateInto parses a rate, such as 200/s or 6000/m, into messages a second.
func rateInto(rate *float64) func(string) error {
	return func(s string) error {
		number, unit, _ := strings.Cut(s, "/")
		per, ok := map[string]float64{"": 1, "s": 1, "m": 60, "h": 3600}[unit]
		n, err := strconv.ParseFloat(number, 64)
		if err != nil || !ok || !(n > 0) || math.IsInf(n, 0) {
			return errors.New("want messages in a time, such as 200/s")
		}
		*rate = n / per
		return nil
	}
}

func (s *simulation) run(stdout, stderr io.Writer) error {
	worker, err := s.applyFile(stderr)
	if err != nil {
		return err
	}
	if ignored := s.ignores(worker); len(ignored) > 0 {
		fmt.Fprintf(stderr, "redelivery simulate: not simulated: %s of the worker\n", strings.Join(ignored, ", "))
	}
	var all []variant
	for _, v := range s.variants() {
		r, err := simulate.Run(v.Setup)
		if err != nil {
			return fmt.Errorf("%s: %w, want a shorter -outage, a lower -rate, fewer -instances or longer delays",
				v.name, err)
		}
		all = append(all, variant{v.name, r})
	}
	if s.svg != "" {
		if err := os.WriteFile(s.svg, s.picture(all), 0o600); err != nil {
			return err
		}
	}
	if s.asJSON {
		return writeJSON(stdout, all)
	}
	s.write(stdout, all)
	return nil
}

// ignores returns the keys of a worker that are not simulated and would change the figures.
func (s *simulation) ignores(w config.Worker) (keys []string) {
	for _, x := range []struct {
		key string
		is  bool
	}{
		{"keyOrder", w.KeyOrder}, {"rateLimit", w.RateLimit > 0}, {"localRetries", w.LocalRetries > 0},
		{"maxAge", w.MaxAge > 0},
		{"timeout", w.Timeout > 0 && w.Timeout < s.Handler}, {"batchMaxMessages", w.BatchMaxMessages > 0},
		{"batchMaxBytes", w.BatchMaxBytes > 0}, {"batchMaxWait", w.BatchMaxWait > 0},
	} {
		if x.is {
			keys = append(keys, x.key)
		}
	}
	return keys
}

// applyFile sets the options from the file, and returns those of the worker.
func (s *simulation) applyFile(stderr io.Writer) (w config.Worker, err error) {
	s.Nack, s.Longest = backoff.Fixed(nack.DefaultDelay), max(time.Hour, 4*s.Outage)
	concurrency := 0
	if s.config != "" {
		file, err := loadFile(s.config, "simulate", stderr)
		if err != nil {
			return w, err
		}
		if _, err := file.Options(s.consumer); err != nil { // the error lists the consumers of the file
			return w, err
		}
		c := file.Consumers[s.consumer]
		w = file.Workers[s.consumer]
		if c.NackRedeliveryBackoff != nil {
			s.Nack = c.NackRedeliveryBackoff
		}
		if c.NackRedeliveryDelay != nil {
			s.Nack = backoff.Fixed(*c.NackRedeliveryDelay)
		}
		s.MaxDeliveries, s.RetryFrom = c.MaxDeliveries, c.NackRetryTopic
		s.Window, s.Ratio, s.Pause = w.PauseOnFailureWindow, w.PauseOnFailureRatio, w.PauseOnFailureBackoff
		concurrency = w.Concurrency
	}
	s.Concurrency = cmp.Or(s.Concurrency, concurrency, 8)
	return w, nil
}

type named struct {
	name string
	simulate.Setup
}

// variants returns the configuration, and variants that each differ from it in one option.
func (s *simulation) variants() []named {
	vary := func(name string, change func(*simulate.Setup)) named {
		v := named{name, s.Setup}
		change(&v.Setup)
		return v
	}
	all := []named{vary("as configured", func(*simulate.Setup) {})}
	if shortest, longest := policies.Bounds(s.Nack, 0); shortest == longest {
		all = append(all, vary("with jitter 0.2", func(v *simulate.Setup) { v.Nack = backoff.WithJitter(v.Nack, 0.2) }))
	} else if jitter, ok := s.Nack.(interface {
		Unwrap() backoff.RedeliveryBackoff
	}); ok {
		all = append(all, vary("without jitter", func(v *simulate.Setup) { v.Nack = jitter.Unwrap() }))
	}
	if s.Window == 0 {
		all = append(all, vary("with a pause", func(v *simulate.Setup) {
			v.Window, v.Ratio, v.Pause = 100, 0.9, backoff.Exponential{Min: time.Second, Max: 10 * time.Second}
		}))
	} else {
		all = append(all, vary("without a pause", func(v *simulate.Setup) { v.Window = 0 }))
	}
	if s.RetryFrom == 0 {
		all = append(all, vary("with a retry topic", func(v *simulate.Setup) { v.RetryFrom = time.Second }))
	} else {
		all = append(all, vary("without a retry topic", func(v *simulate.Setup) { v.RetryFrom = 0 }))
	}
	return all
}
