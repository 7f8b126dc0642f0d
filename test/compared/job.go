package main

import (
	"encoding/json"
	"io"
	"os"
	"time"
)

// job is what a consumer's process gets as a line of JSON on standard input. It says "ready" when it is subscribed,
// appends to the file of its history, and ends in order when standard input ends.
type job struct {
	URL      string `json:"url"`
	Topic    string `json:"topic"`
	Workload string `json:"workload"`
	Best     bool   `json:"best"` // with the options that help, instead of the defaults
	Name     string `json:"name"` // of the consumer in the history
	File     string `json:"file"`
}

const subscription = "compared"

// What all consumers do, in milliseconds where it is a time. The programs in other languages have these too.
const (
	failures   = 2                // of a message that fails
	firstDelay = time.Second      // of nacks: 1 s, 2 s, 4 s
	maxDelay   = 4 * time.Second  // of nacks
	ackTimeout = 10 * time.Second // the least that the Python client allows
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
