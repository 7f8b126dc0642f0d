package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pulsar-redelivery/redelivery/benchmarks/internal/worker"
)

// A result has the figures of one client in one setting of a work.
type result struct {
	Work    string             `json:"work"`
	Setting string             `json:"setting"`
	Client  string             `json:"client"`
	Task    worker.Task        `json:"task"`
	Failed  string             `json:"failed,omitempty"`
	Figures map[string]float64 `json:"figures,omitempty"`
	Samples []float64          `json:"samples,omitempty"`
}

// A runner makes worker processes do the works.
type runner struct {
	broker   *broker
	programs map[string][]string // command lines
	progress *progress
}

// A cell is one line of a work's table.
type cell struct {
	setting setting
	client  client
}

// cells returns the cells of w whose programs can run here, in the order of w's settings and clients.
func (r *runner) cells(w work) (cells []cell) {
	for _, s := range w.settings {
		for _, c := range w.clients {
			if r.programs[c.task.Program] != nil && (c.only == "" || c.only == s.name) {
				cells = append(cells, cell{s, c})
			}
		}
	}
	return cells
}

// warmUps is how often the first work is done before results count. In this time the broker's JVM compiles its code.
const warmUps = 10

// warmUp does a work, and drops its results.
func (r *runner) warmUp(ctx context.Context, w work) {
	cells := r.cells(w)
	for i := 0; i < warmUps && len(cells) > 0 && ctx.Err() == nil; i++ {
		r.progress.say(fmt.Sprintf("warming the broker up, %d of %d", i+1, warmUps))
		_, _ = r.runTask(ctx, merge(cells[0].setting.task, cells[0].client.task), cells[0].setting)
	}
}

// run does w, and returns the results. Each round does all cells once, so that other load on the computer does not hit
// one client only.
func (r *runner) run(ctx context.Context, w work) []result {
	cells := r.cells(w)
	results, reports := make([]result, len(cells)), make([][]worker.Report, len(cells))
	for range max(1, w.rounds) {
		for i, c := range cells {
			if ctx.Err() != nil {
				return nil
			}
			results[i].Work, results[i].Setting, results[i].Client = w.name, c.setting.name, c.client.name
			results[i].Task = merge(c.setting.task, c.client.task)
			if c.client.none {
				continue
			}
			r.progress.show(w.name + " " + c.setting.name + ", " + c.client.name)
			report, err := r.runTask(ctx, results[i].Task, c.setting)
			if err != nil {
				results[i].Failed = err.Error()
			} else {
				reports[i] = append(reports[i], report)
			}
		}
	}
	for i := range results {
		if len(reports[i]) == 0 {
			continue
		}
		results[i].Figures, results[i].Samples = median(reports[i])
		summarize(&results[i])
	}
	return results
}

// runTask makes one worker do a task, on a topic of its own.
func (r *runner) runTask(ctx context.Context, task worker.Task, s setting) (report worker.Report, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	task.URL = r.broker.url
	task.Topic, err = r.broker.topic(s.partitions)
	if err != nil {
		return report, err
	}
	defer func() { _ = r.broker.delete(task.Topic, s.partitions) }()
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
	report, err = r.talk(in, out, task, s)
	if err != nil {
		cancel()
	}
	if ended := cmd.Wait(); ended != nil {
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		return report, fmt.Errorf("%w: %s", cmp.Or(err, ended), lines[len(lines)-1])
	}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok && err == nil {
		report.Figures["peakMB"] = float64(usage.Maxrss) / 1024 // on Linux, Maxrss is in kilobytes
	}
	return report, err
}

// talk sends a worker its task, publishes the messages that the worker asks for, and returns the worker's report.
func (r *runner) talk(in io.Writer, out io.Reader, task worker.Task, s setting) (worker.Report, error) {
	line, err := json.Marshal(task)
	if err != nil {
		return worker.Report{}, err
	}
	if _, err := in.Write(append(line, '\n')); err != nil {
		return worker.Report{}, err
	}
	scanner := bufio.NewScanner(out)
	scanner.Buffer(nil, 16<<20)
	for scanner.Scan() {
		var answer struct {
			Publish int `json:"publish"`
			worker.Report
		}
		if err := json.Unmarshal(scanner.Bytes(), &answer); err != nil {
			return worker.Report{}, err
		}
		if answer.Publish == 0 {
			return answer.Report, nil
		}
		if err := r.broker.publish(task.Topic, answer.Publish, task.BatchSize, s.every); err != nil {
			return worker.Report{}, err
		}
		_, _ = in.Write([]byte("\n")) // the worker may ignore this line
	}
	return worker.Report{}, errors.New("the worker ended without a report")
}

// merge returns a copy of task in which the nonzero fields of changes replace those of task.
func merge(task, changes worker.Task) worker.Task {
	set(reflect.ValueOf(&task).Elem(), reflect.ValueOf(changes))
	return task
}

func set(to, from reflect.Value) {
	for i := range from.NumField() {
		switch field := from.Field(i); {
		case field.Kind() == reflect.Struct:
			set(to.Field(i), field)
		case !field.IsZero():
			to.Field(i).Set(field)
		}
	}
}

// median returns the median of each figure, and the samples of all reports.
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
