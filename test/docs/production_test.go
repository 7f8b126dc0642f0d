package docs_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/pulsar-redelivery/redelivery/doctor"
)

var update = flag.Bool("update", false, "write the checks into docs/production.md")

const productionPage = "docs/production.md"

// section is what docs/production.md says about the checks.
func section() string {
	var b strings.Builder
	about := ""
	for _, c := range doctor.Checks() {
		if c.About != about {
			about = c.About
			fmt.Fprintf(&b, "\n### %s\n\n| check | asks | why it matters | what helps | needs |\n|---|---|---|---|---|\n", about)
		}
		needs := map[doctor.Needs]string{doctor.Options: "options", doctor.Given: "command line, file", doctor.AdminAPI: "admin API",
			doctor.SuperUser: "super user"}[c.Needs]
		fmt.Fprintf(&b, "| <a id=\"%s\"></a>`%s` | %s | %s | %s | %s |\n", c.Name, c.Name, c.Asks, c.Why, inCapitals(c.Remedy), needs)
	}
	return b.String() + "\n"
}

// inCapitals writes {topic} as TOPIC.
func inCapitals(remedy string) string {
	return regexp.MustCompile(`{[a-z]+}`).ReplaceAllStringFunc(remedy, func(s string) string { return strings.ToUpper(strings.Trim(s, "{}")) })
}

// The page says of each check what the check says of itself.
func TestProductionHasTheChecks(t *testing.T) {
	text, err := os.ReadFile(productionPage)
	require.NoError(t, err)
	const begins, ends = "<!-- checks -->\n", "<!-- end -->"
	before, rest, found := strings.Cut(string(text), begins)
	require.True(t, found)
	is, after, found := strings.Cut(rest, ends)
	require.True(t, found)
	if *update {
		require.NoError(t, os.WriteFile(productionPage, []byte(before+begins+section()+ends+after), 0o600))
		return
	}
	require.Equal(t, section(), is, "go test ./test/docs -update writes it")
}

// What the page, the doctor and the alerts link to is there, and every alert has its line.
func TestProductionLinks(t *testing.T) {
	text, err := os.ReadFile(productionPage)
	require.NoError(t, err)
	places := map[string]bool{}
	for _, id := range regexp.MustCompile(`<a id="([^"]+)">`).FindAllStringSubmatch(string(text), -1) {
		assert.False(t, places[id[1]], "%s is there twice", id[1])
		places[id[1]] = true
	}
	for _, c := range doctor.Checks() {
		_, place, _ := strings.Cut(doctor.Link(c.Name), "production.md#")
		assert.True(t, places[place], c.Name)
	}
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(text), -1) {
		places[strings.ReplaceAll(strings.ReplaceAll(strings.ToLower(heading[1]), ",", ""), " ", "-")] = true
	}
	for _, link := range regexp.MustCompile(`\]\(#([^)]+)\)`).FindAllStringSubmatch(string(text), -1) {
		assert.True(t, places[link[1]], link[1])
	}
	rules, err := os.ReadFile("metrics/deploy/alerts.yaml")
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations map[string]string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(rules, &file))
	for _, rule := range file.Groups[0].Rules {
		_, place, found := strings.Cut(rule.Annotations["runbook_url"], "docs/production.md#")
		assert.True(t, found && places[place], rule.Alert)
		assert.Equal(t, strings.ToLower(rule.Alert), place)
		for _, by := range regexp.MustCompile(`\bby \(([^)]*)\)`).FindAllStringSubmatch(rule.Expr, -1) {
			assert.Contains(t, by[1], "instance", rule.Alert)
		}
		assert.Contains(t, rule.Annotations["summary"], "$labels.instance", rule.Alert)
	}
}
