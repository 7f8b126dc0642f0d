package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/config"
	"github.com/pulsar-redelivery/redelivery/doctor"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// parse parses flags before and after the topic.
func (f *doctorFlags) parse(args []string) error {
	set := flag.NewFlagSet("redelivery doctor", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	s := &f.setup
	f.flags(set)
	set.StringVar(&s.Subscription, "subscription", "", "")
	set.Func("config", "", fileInto(&f.config))
	set.StringVar(&f.consumer, "consumer", "", "")
	set.Func("type", "", func(name string) error {
		if !slices.Contains(subscriptionTypes, name) {
			return fmt.Errorf("want one of %s", strings.Join(subscriptionTypes, ", "))
		}
		s.Type = name
		return nil
	})
	set.Func("handler-time", "", positiveInto(&s.Load.HandlerTime))
	set.Func("concurrency", "", countInto(&s.Load.Concurrency, 1, math.MaxInt32))
	set.Func("queue", "", countInto(&s.Consumer.ReceiverQueueSize, 1, math.MaxInt32))
	set.BoolVar(&f.indexAcks, "batch-index-acks", false, "")
	set.Func("failing", "", fractionInto(&s.Load.Failing))
	set.Func("instances", "", countInto(&s.Load.Instances, 1, math.MaxInt32))
	set.Func("keep-alive", "", positiveInto(&s.Consumer.KeepAliveInterval))
	set.Func("operation-timeout", "", positiveInto(&s.Consumer.OperationTimeout))
	set.Func("grace-period", "", positiveInto(&f.gracePeriod))
	set.BoolVar(&f.asJSON, "json", false, "")
	topics, err := parseAll(set, args)
	if err != nil {
		return err
	}
	set.Visit(func(given *flag.Flag) { f.given[given.Name] = true })
	switch {
	case len(topics) == 0:
		return errUsage{errors.New("no topic is given")}
	case len(topics) > 1:
		return errUsage{fmt.Errorf("argument is %q, want only one topic", topics[1])}
	case s.Subscription == "":
		return errUsage{errors.New("-subscription is missing, want the name of the subscription")}
	case f.given["config"] != f.given["consumer"]:
		return errUsage{errors.New("only one of -config and -consumer is given, want both or none")}
	}
	if err := topicName("topic", topics[0]); err != nil {
		return errUsage{err}
	}
	s.Topic = topics[0]
	if f.given["batch-index-acks"] {
		s.Consumer.BatchIndexAcknowledgment = &f.indexAcks
	}
	s.Consumer.TerminationGracePeriodSeconds = int(f.gracePeriod / time.Second)
	return nil
}

var subscriptionTypes = []string{"Exclusive", "Shared", "Failover", "Key_Shared"}

// positiveInto parses a duration of more than 0.
func positiveInto(d *time.Duration) func(string) error {
	return func(s string) error {
		if err := durationInto(d)(s); err != nil {
			return err
		}
		if *d <= 0 {
			return errors.New("want more than 0")
		}
		return nil
	}
}

// fractionInto parses a number above 0, and at most 1.
func fractionInto(n *float64) func(string) error {
	return func(s string) error {
		if err := numberInto(n)(s); err != nil || !(*n > 0 && *n <= 1) {
			return errors.New("want a number above 0, and at most 1")
		}
		return nil
	}
}

// applyFile sets the options of a consumer, and of the worker with the same name, from a file.
func (f *doctorFlags) applyFile(file *config.Config, consumer string) {
	f.applyConsumer(file.Consumers[consumer])
	if w, found := file.Workers[consumer]; found {
		f.setup.Worker = workerOf(w)
	}
}

// applyConsumer sets the options of the consumer from a file.
func (f *doctorFlags) applyConsumer(c config.Consumer) {
	s := &f.setup
	s.Policy = doctor.Policy{Nack: c.NackRedeliveryBackoff, NackRetryTopic: c.NackRetryTopic, AckTimeout: c.AckTimeout,
		AckTimeoutBackoff: c.AckTimeoutRedeliveryBackoff, Reconsume: c.ReconsumeBackoff, MaxDeliveries: c.MaxDeliveries,
		MaxReconsumes: c.MaxReconsumes, DeadBeforeTTL: c.DeadBeforeTTL}
	if c.NackRedeliveryDelay != nil {
		s.Policy.Nack = backoff.Fixed(*c.NackRedeliveryDelay)
	}
	if c.MemoryLimit != nil {
		s.Policy.MemoryLimit = cmp.Or(*c.MemoryLimit, -1)
	}
	s.InitialSubscriptionName = c.InitialSubscriptionName
	if c.ReconsumeBackoff != nil {
		s.RetryTopic = topicname.In(s.Topic, cmp.Or(c.RetryTopic, topicname.Retry(s.Topic, s.Subscription)))
	}
	if !c.Discard && (c.MaxDeliveries > 0 || c.MaxReconsumes > 0) {
		s.DeadLetterTopic = topicname.In(s.Topic,
			cmp.Or(c.DeadLetterTopic, topicname.DeadLetter(s.Topic, s.Subscription)))
	}
}

// workerOf returns a file's options of a worker, with the defaults of package worker.
func workerOf(w config.Worker) *doctor.Worker {
	d := &doctor.Worker{Concurrency: w.Concurrency, Timeout: w.Timeout, DrainTimeout: 30 * time.Second,
		Pauses: w.PauseOnFailureBackoff != nil}
	if w.DrainTimeout != nil {
		d.DrainTimeout = *w.DrainTimeout
	}
	return d
}
