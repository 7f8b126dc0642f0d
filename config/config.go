// Package config reads redelivery policies, consumers and workers from a YAML or JSON file:
//
//	policies:
//	  gentle: {type: exponential, min: 1s, max: 10m, multiplier: 2, jitter: 0.1}
//	  ladder: {type: levels, levels: "1s 5s 10s 30s 1m"}
//	  minute: {type: fixed, delay: 1m, jitter: 0.5}
//	  java:   {className: MultiplierRedeliveryBackoff, params: {minDelayMs: 1000, maxDelayMs: 60000, multiplier: 2}}
//	consumers:
//	  billing:
//	    nackRedeliveryBackoff: gentle       # or nackRedeliveryDelay: 30s
//	    ackTimeout: 10s
//	    ackTimeoutRedeliveryBackoff: java
//	    reconsumeBackoff: ladder            # also subscribes to the retry topic
//	    retryTopic: orders-retry
//	    nackRetryTopic: 10m                 # nacks with at least this delay go to the retry topic
//	    maxDeliveries: 5                    # then the message goes to the dead letter topic
//	    maxReconsumes: 8
//	    deadLetterTopic: orders-dead
//	    initialSubscriptionName: inspect
//	    omitCause: true
//	    deadBeforeTTL: 3d                   # the namespace's time to live; or discard: true, for no dead letters
//	    attemptLog: true                    # counts and delays outlive the process
//	    attemptLogTopic: orders-attempts
//	    attemptLogOptional: true
//	    attemptLogOpenTimeout: 10s          # how long subscribing may take to read the log
//	    attemptLogRetention: 2d
//	    memoryLimit: 64MiB
//	    redeliveryFrom: memory              # or broker, or auto
//	    resolution: 20ms
//	    withoutChecks: true                 # skips the checks of the options
//	workers:
//	  billing:
//	    concurrency: 8
//	    timeout: 30s                        # of a handler
//	    drainTimeout: 1m
//	    finishBatches: true                 # a drain finishes batches that were begun
//	    maxAge: 1d
//	    keyOrder: true
//	    crashLimit: 3                       # a message that has crashed this many processes is a dead letter
//	    begunAfter: 50ms                    # for crashLimit, a message is recorded after this long in its handler
//	    stuckLimit: 10m                     # a handler that hangs this long loses its place
//	    cancelLost: true                    # ends a handler's context if another consumer has its message
//	    rateLimit: 200                      # messages a second
//	    rateBurst: 20                       # messages that may start together after a quiet time
//	    localRetries: 2                     # more calls of the handler before a failure counts
//	    localRetryBackoff: minute
//	    pauseOnFailureWindow: 100           # an outage begins when window × ratio messages, here 90, fail in a row;
//	    pauseOnFailureRatio: 0.9            # then the worker tries one message at a time
//	    pauseOnFailureBackoff: gentle       # the pauses before these tries
//	  reports:
//	    batchMaxMessages: 100               # each of these three keys makes reports a worker of batches
//	    batchMaxBytes: 1MiB
//	    batchMaxWait: 100ms
//
// [Config.Subscribe] subscribes with the file's settings of a consumer, and [Config.NewWorker] makes a worker with the
// file's settings. A file replaces a program's setting only if the file has this setting. [Consumer] and [Worker]
// explain each key.
//
// # Policies
//
//   - exponential: [backoff.Exponential]; by default min 1s, max 10m and multiplier 2
//   - levels: [backoff.DelayLevels], written as [backoff.ParseDelayLevels] reads them
//   - fixed: [backoff.Fixed]
//   - className: a class of the Java client, with or without its package: NegativeAckRedeliveryExponentialBackoff
//     (PIP-106), ExponentialRedeliveryBackoff (PIP-130) or MultiplierRedeliveryBackoff (which Java ships today). All
//     three are a [backoff.Exponential] with Java's defaults: minDelayMs 10000, maxDelayMs 600000, multiplier 2. params
//     is a map or, as in Java's loadConf, a string of JSON.
//   - a custom type or class: [NewPolicy]
//
// The types exponential, levels and fixed also accept jitter, a fraction from 0 to 1: see [backoff.WithJitter].
// A duration is in whole milliseconds, with the units ms, s, m and h, as in 1m30s; or in whole days, as in 1d.
// Bytes are a whole number, alone or with a unit: KiB, MiB or GiB. An anchor (&name) and its aliases (*name) work;
// merge keys (<<) do not.
//
// # Names of the Java client
//
// A consumer may have the fields of Java's DeadLetterPolicy by Java's names: deadLetterTopic and
// initialSubscriptionName are the same, retryLetterTopic is retryTopic, and maxRedeliverCount: 3 is maxDeliveries: 4
// with maxReconsumes: 3, since Java does not count the first delivery. Using both names of a setting is an error, but
// maxReconsumes may be used with maxRedeliverCount. Other names of Java are errors that give the right key.
//
// # Environment
//
// An environment variable sets one key of a policy, consumer or worker that the file names, whether or not the file
// sets that key. The variable's name is REDELIVERY_ and the path in the file, in capitals. An underscore stands for
// each dot, for each character that is not a letter or digit, and before each capital that follows a small letter or
// digit:
//
//	REDELIVERY_CONSUMERS_BILLING_ACK_TIMEOUT=20s    # consumers.billing.ackTimeout
//	REDELIVERY_POLICIES_GENTLE_MAX=5m               # policies.gentle.max
//
// An empty variable counts as not set. A variable that begins with REDELIVERY_CONSUMERS_, REDELIVERY_POLICIES_ or
// REDELIVERY_WORKERS_ but matches no key, or more than one, is an error. Only variables that Kubernetes sets for a
// service, such as REDELIVERY_CONSUMERS_SERVICE_HOST, are ignored. A variable whose section is in the singular, such as
// REDELIVERY_CONSUMER_BILLING_ACK_TIMEOUT, is an error if the same variable in the plural would match a key.
//
// # Errors
//
// An unknown key, a wrong value, a duplicate name and an undefined name are errors. All errors of a file are reported
// at once, joined as by [errors.Join]. Each error has the file, the line, the path, the value and the allowed values:
//
//	redelivery.yaml:3: policies.gentle.max is "5", want a duration with its unit, such as "30s"
//	redelivery.yaml:7: consumers.billing.maxDelivery is an unknown key (did you mean maxDeliveries?), want one of …
//
// A file may have at most 1 MiB and 32 levels. With its aliases expanded, it may have at most 1 MiB of text and 100,000
// values.
package config

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/pulsar-redelivery/redelivery/backoff"
)

// Config is the content of a file. Its methods do not change it, so they are safe for concurrent use. They return an
// error if the file does not have the consumer or the worker. The zero value is an empty file.
type Config struct {
	Policies  map[string]backoff.RedeliveryBackoff // by name
	Consumers map[string]Consumer                  // by name
	Workers   map[string]Worker                    // by name
}

// Load reads a file, and applies the environment variables that override it. policies are custom policy types that the
// file may use. Errors begin with the path of the file and the line. If the file cannot be read, the error wraps the
// error of package os. Load may be called concurrently.
func Load(path string, policies ...Policy) (*Config, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return parse(data, inFile(path), policies)
}

// Parse is Load for the content of a file. Errors begin with the line.
func Parse(data []byte, policies ...Policy) (*Config, error) {
	return parse(data, inFile(""), policies)
}

func parse(data []byte, at place, policies []Policy) (*Config, error) {
	if len(data) > maxBytes {
		return nil, fmt.Errorf("%s is longer than %d bytes, want a file of policies and consumers", at(0), maxBytes)
	}
	factories, err := factoriesOf(policies)
	if err != nil {
		return nil, err
	}
	root, errs := parseTree(data, new(node), at)
	d := decoder{factories: factories, errs: errs}
	c := &Config{map[string]backoff.RedeliveryBackoff{}, map[string]Consumer{}, map[string]Worker{}}
	if root != nil {
		d.override(root, os.Environ())
		d.config(root, c)
	}
	if len(d.errs) == 0 && len(c.Policies)+len(c.Consumers)+len(c.Workers) == 0 {
		return nil, fmt.Errorf("%s is empty, want policies and consumers", at(0))
	}
	if err := errors.Join(d.errs...); err != nil {
		return nil, err
	}
	return c, nil
}

func (d *decoder) config(root *node, c *Config) {
	sections := d.fields(root, "policies", "consumers", "workers")
	if policies := sections["policies"]; policies != nil {
		d.fields(policies) // adds an error if policies is no map
		for _, f := range policies.fields {
			c.Policies[f.name] = d.policy(f.value)
		}
	}
	d.policies = namesOf(c.Policies)
	if consumers := sections["consumers"]; consumers != nil {
		d.fields(consumers)
		for _, f := range consumers.fields {
			c.Consumers[f.name] = d.consumer(f.value, c.Policies)
		}
	}
	if workers := sections["workers"]; workers != nil {
		d.fields(workers)
		for _, f := range workers.fields {
			c.Workers[f.name] = d.worker(f.value, c.Policies)
		}
	}
}

// namesOf lists the first ten names of a section, for an error.
func namesOf[V any](named map[string]V) string {
	const most = 10
	if len(named) == 0 {
		return "the file has none"
	}
	names := slices.Sorted(maps.Keys(named))
	rest := len(names) - most
	names = names[:min(most, len(names))]
	for i, name := range names {
		names[i] = join("", name)
	}
	if rest > 0 {
		names = append(names, fmt.Sprintf("and %d more", rest))
	}
	return strings.Join(names, ", ")
}
