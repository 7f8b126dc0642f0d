package main

import (
	"encoding/json"
	"io"
	"os"
	"time"
)

// job is a line of JSON that a consumer's process gets on standard input. The process prints "ready" when it has
// subscribed, writes its history to File, and ends normally when standard input ends.
type job struct {
	URL      string `json:"url"`
	Topic    string `json:"topic"`
	Workload string `json:"workload"`
	Best     bool   `json:"best"` // use the options that help, instead of the defaults
	Name     string `json:"name"` // the consumer's name in the history
	File     string `json:"file"`
}

const subscription = "compared"

// Settings of all consumers. The programs in other languages have the same settings, with times in milliseconds.
const (
	failures   = 2                // how often a message that fails does so in each process
	firstDelay = time.Second      // of nacks: 1 s, 2 s, 4 s
	maxDelay   = 4 * time.Second  // of nacks
	ackTimeout = 10 * time.Second // the shortest that the Python client allows
	retryDelay = 3 * time.Second  // of the retry topic
)

// Workloads.
const (
	nack    = "nack"
	batch   = "batch"
	timeout = "timeout"
	retry   = "retry"
)

func readJob() (j job, err error) {
	d := json.NewDecoder(os.Stdin)
	err = d.Decode(&j)
	return j, err
}

// untilOver waits until the runner ends standard input.
func untilOver() { _, _ = io.Copy(io.Discard, os.Stdin) }
