package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/pulsar-redelivery/redelivery/deadletter"
)

// browse is "redelivery dlq" without a verb, on a terminal. It asks for a topic and a group of its letters, shows a
// letter and what a replay would do, and asks whether to replay the group. It prints each peek and replay before it
// runs it. It does not control the screen, it only reads and writes lines.
type browse struct {
	in             *bufio.Scanner
	stdout, stderr io.Writer
}

func (b *browse) run() int {
	for {
		var topics []topicInfo
		if !b.get(&topics, "list") {
			return 1
		}
		var names, lines []string
		for _, t := range topics {
			if !t.Retry {
				keeps := 0
				for _, s := range t.Subscriptions {
					keeps = max(keeps, s.Backlog)
				}
				names, lines = append(names, t.Topic), append(lines,
					fmt.Sprintf("%s, %s", short(t.Topic), entries(keeps)))
			}
		}
		i, ok := b.choose("Topic", lines)
		if !ok {
			return 0
		}
		b.topic(short(names[i]))
	}
}

// topic asks for groups of letters until no group is left, or until the user goes back.
func (b *browse) topic(name string) {
	for {
		var groups []deadletter.Group
		if !b.get(&groups, "groups", name) {
			return
		}
		var lines []string
		for _, g := range groups {
			lines = append(lines, fmt.Sprintf("%s, %s: %s", count(g.Count), ago(g.Last), cause(g.Type, g.Reason)))
		}
		i, ok := b.choose("Group", lines)
		if !ok {
			return
		}
		group := []string{name, "-group", groups[i].ID}
		b.do("peek", append(group, "-n", "1", "-payload")...)
		if b.do("replay", group...) != 0 {
			continue
		}
		if answer, _ := b.ask("c replays five letters, and the rest if these are processed; anything else goes " +
			"back: "); answer == "c" {
			b.do("replay", append(group, "-canary", strconv.Itoa(min(5, groups[i].Count)), "-yes")...)
		}
	}
}

// choose asks the user to choose a line. It reports false if the user chooses none.
func (b *browse) choose(what string, lines []string) (int, bool) {
	fmt.Fprintln(b.stdout)
	if len(lines) == 0 {
		fmt.Fprintf(b.stdout, "No %s.\n", strings.ToLower(what))
		return 0, false
	}
	for i, line := range lines {
		fmt.Fprintln(b.stdout, fit(fmt.Sprintf("%3d  %s", i+1, line), screen(b.stdout)))
	}
	for {
		answer, ok := b.ask(fmt.Sprintf("%s, 1 to %d, or q to go back: ", what, len(lines)))
		if !ok || answer == "q" {
			return 0, false
		}
		if n, err := strconv.Atoi(answer); err == nil && n >= 1 && n <= len(lines) {
			return n - 1, true
		}
	}
}

func (b *browse) ask(question string) (string, bool) {
	fmt.Fprint(b.stdout, question)
	ok := b.in.Scan()
	return strings.TrimSpace(b.in.Text()), ok
}

// do shows a command and runs it.
func (b *browse) do(verb string, args ...string) int {
	fmt.Fprintf(b.stdout, "\n$ redelivery dlq %s %s\n", verb, strings.Join(args, " "))
	return dlqCommand(append([]string{verb}, args...), strings.NewReader(""), b.stdout, b.stderr)
}

// get reads a command's output as JSON.
func (b *browse) get(v any, args ...string) bool {
	var out bytes.Buffer
	return dlqCommand(append(args, "-json"), strings.NewReader(""), &out, b.stderr) == 0 &&
		json.Unmarshal(out.Bytes(), v) == nil
}
