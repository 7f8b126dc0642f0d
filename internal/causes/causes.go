// Package causes says which errors are of one kind.
package causes

import "regexp"

var (
	ids     = regexp.MustCompile(`(?i)\b(?:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|0x[0-9a-f]+|[0-9a-f]*(?:[0-9][a-f]|[a-f][0-9])[0-9a-f]{6,})\b`)
	numbers = regexp.MustCompile(`\d+(?:[.,:]\d+)*`)
)

// Mask puts <id> for ids and <n> for numbers, so that the texts of one cause are the same.
func Mask(text string) string {
	return numbers.ReplaceAllString(ids.ReplaceAllString(text, "<id>"), "<n>")
}
