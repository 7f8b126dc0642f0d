package docs_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/pulsar-redelivery/redelivery/doctor"
)

var update = flag.Bool("update", false, "write docs/checks.md, and the outputs in docs/fifteen-minutes.md")

const (
	productionPage = "docs/production.md"
	checksPage     = "docs/checks.md"
)

// section returns the text that docs/checks.md must have about the checks.
func section() string {
	var b strings.Builder
	about := ""
	for _, c := range doctor.Checks() {
		if c.About != about {
			about = c.About
			fmt.Fprintf(&b, "\n## %s\n", about)
		}
		needs := map[doctor.Needs]string{doctor.Options: " ¹", doctor.Given: " ²", doctor.SuperUser: " ³"}[c.Needs]
		fmt.Fprintf(&b, "\n### `%s`\n\n*%s*%s %s  \n→ %s\n",
			c.Name, c.Asks, needs, sentence(c.Why), sentence(inCapitals(c.Remedy)))
	}
	return b.String() + "\n"
}

// sentence returns text with a capital at the beginning and a full stop. The name pulsar-client-go gets no capital.
func sentence(text string) string {
	if !strings.HasPrefix(text, "pulsar-client-go") {
		text = strings.ToUpper(text[:1]) + text[1:]
	}
	return text + "."
}

// inCapitals writes {topic} as TOPIC.
func inCapitals(remedy string) string {
	return regexp.MustCompile(`{[a-z]+}`).ReplaceAllStringFunc(remedy, func(s string) string { return strings.ToUpper(strings.Trim(s, "{}")) })
}

// The texts are those of package doctor.
func TestChecksPageHasEveryCheck(t *testing.T) {
	text, err := os.ReadFile(checksPage)
	require.NoError(t, err)
	const begins, ends = "<!-- checks -->\n", "<!-- end -->"
	before, rest, found := strings.Cut(string(text), begins)
	require.True(t, found)
	is, after, found := strings.Cut(rest, ends)
	require.True(t, found)
	if *update {
		require.NoError(t, os.WriteFile(checksPage, []byte(before+begins+section()+ends+after), 0o600))
		return
	}
	require.Equal(t, section(), is, "the section is out of date: run go test ./test/docs -update")
}

// placesOf returns the anchors of a page, which come from its ids and headings.
func placesOf(t *testing.T, page string) map[string]bool {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	places := map[string]bool{}
	for _, id := range regexp.MustCompile(`<a id="([^"]+)">`).FindAllStringSubmatch(string(text), -1) {
		assert.False(t, places[id[1]], "%s has %s twice", page, id[1])
		places[id[1]] = true
	}
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(text), -1) {
		bare := regexp.MustCompile("[^a-z0-9 _-]").ReplaceAllString(strings.ToLower(heading[1]), "")
		places[strings.ReplaceAll(bare, " ", "-")] = true
	}
	return places
}

// It tests no links to web pages.
func TestLinksLeadToExistingFilesAndAnchors(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	for _, page := range append(pages, "README.md", "CHANGELOG.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, link := range regexp.MustCompile(`\]\(([^):]+)\)`).FindAllStringSubmatch(string(text), -1) {
			file, place, hasPlace := strings.Cut(link[1], "#")
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			_, err := os.Stat(target)
			assert.NoError(t, err, "%s has a broken link to %s", page, link[1])
			if err == nil && hasPlace {
				assert.True(t, placesOf(t, target)[place], "%s has a broken link to %s", page, link[1])
			}
		}
	}
}

// checks.md has an anchor for each check, and production.md has one for each alert.
func TestDoctorAndAlertsLinkToExistingAnchors(t *testing.T) {
	checks := placesOf(t, checksPage)
	for _, c := range doctor.Checks() {
		_, place, _ := strings.Cut(c.Link(), checksPage+"#")
		assert.True(t, checks[place], c.Name)
	}
	places := placesOf(t, productionPage)
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
		_, place, found := strings.Cut(rule.Annotations["runbook_url"], productionPage+"#")
		assert.True(t, found && places[place], rule.Alert)
		assert.Equal(t, strings.ToLower(rule.Alert), place)
		for _, by := range regexp.MustCompile(`\bby \(([^)]*)\)`).FindAllStringSubmatch(rule.Expr, -1) {
			assert.Contains(t, by[1], "instance", rule.Alert)
		}
		assert.Contains(t, rule.Annotations["summary"], "$labels.instance", rule.Alert)
	}
}
