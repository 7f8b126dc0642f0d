package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pulsar-redelivery/redelivery/benchmarks/internal/worker"
)

// A result is what one client did in one setting of a work.
type result struct {
	Work    string             `json:"work"`
	Setting string             `json:"setting"`
	Client  string             `json:"client"`
	Task    worker.Task        `json:"task"`
	Failed  string             `json:"failed,omitempty"`
	Figures map[string]float64 `json:"figures,omitempty"`
	Samples []float64          `json:"samples,omitempty"`
}

// A runner has worker processes do the works.
type runner struct {
	broker   *broker
	programs map[string][]string // command lines
	progress *progress
}

// run returns the results of w, in the order of its settings and clients. Rounds take turns, so that a disturbance of the
// machine does not hit one client only.
func (r *runner) run(ctx context.Context, w work) []result {
	var results []result
	reports := map[int][]worker.Report{}
	for range max(1, w.rounds) {
		i := 0
		for _, s := range w.settings {
			for _, c := range w.clients {
				if r.programs[c.task.Program] == nil || c.only != "" && c.only != s.name {
					continue
				}
				if i == len(results) {
					task := merge(s.task, c.task)
					results = append(results, result{Work: w.name, Setting: s.name, Client: c.name, Task: task})
				}
				r.progress.show(strings.Join(slices.DeleteFunc([]string{w.name, s.name, c.name},
					func(s string) bool { return s == "" }), ", "))
				report, err := r.once(ctx, results[i].Task, s)
				if err != nil {
					results[i].Failed = err.Error()
				} else {
					reports[i] = append(reports[i], report)
				}
				i++
			}
		}
	}
	for i := range results {
		results[i].Figures, results[i].Samples = median(reports[i])
		summarise(&results[i])
	}
	return results
}

// once has one worker do a task, on a topic of its own.
func (r *runner) once(ctx context.Context, task worker.Task, s setting) (report worker.Report, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	task.URL = r.broker.url
	if task.Topic, err = r.broker.topic(s.partitions); err != nil {
		return report, err
	}
	defer func() { _ = r.broker.delete(task.Topic, s.partitions) }()
	line, err := json.Marshal(task)
	if err != nil {
		return report, err
	}
	command := r.programs[task.Program]
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return report, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return report, err
	}
	if err := cmd.Start(); err != nil {
		return report, err
	}
	_, err = in.Write(append(line, '\n'))
	scanner := bufio.NewScanner(out)
	scanner.Buffer(nil, 16<<20)
	for err == nil && scanner.Scan() {
		answer := struct {
			Publish int `json:"publish"`
			worker.Report
		}{}
		if err = json.Unmarshal(scanner.Bytes(), &answer); err != nil {
			break
		}
		report = answer.Report
		if answer.Publish > 0 {
			if err = r.broker.publish(task.Topic, answer.Publish, task.BatchSize, s.every); err == nil {
				_, _ = in.Write([]byte("\n")) // nobody has to read it
			}
		}
	}
	if err != nil {
		cancel()
	}
	if failed := cmd.Wait(); failed != nil {
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		err = cmp.Or(err, fmt.Errorf("%w: %s", failed, lines[len(lines)-1]))
	}
	if err == nil && report.Figures == nil {
		err = errors.New("the worker ended without a report")
	}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok && err == nil {
		report.Figures["peakMB"] = float64(usage.Maxrss) / 1024 // kilobytes on Linux
	}
	return report, err
}

// merge returns task with what changes sets.
func merge(task, changes worker.Task) worker.Task {
	from, to := reflect.ValueOf(changes), reflect.ValueOf(&task).Elem()
	for i := range from.NumField() {
		if !from.Field(i).IsZero() {
			to.Field(i).Set(from.Field(i))
		}
	}
	return task
}

// median returns the median of every figure and all samples.
func median(reports []worker.Report) (map[string]float64, []float64) {
	all := map[string][]float64{}
	var samples []float64
	for _, r := range reports {
		samples = append(samples, r.Samples...)
		for name, f := range r.Figures {
			all[name] = append(all[name], f)
		}
	}
	figures := map[string]float64{}
	for name, f := range all {
		slices.Sort(f)
		figures[name] = f[len(f)/2]
	}
	return figures, samples
}
