package config

import (
	"slices"
	"strings"
)

// javaKeys has settings of Java's ConsumerConfigurationData and ConsumerBuilder that are no keys of the file. For each
// setting it has the file's key for the same purpose, and a hint about this key.
var javaKeys = map[string]struct{ key, text string }{
	"negativeAckRedeliveryBackoff": {"nackRedeliveryBackoff",
		"here it is nackRedeliveryBackoff, with the name of a policy"},
	"negativeAckRedeliveryDelay": {"nackRedeliveryDelay",
		`here it is nackRedeliveryDelay, with a unit, such as "60s"`},
	"negativeAckRedeliveryDelayMicros": {"nackRedeliveryDelay",
		`here it is nackRedeliveryDelay, with a unit, such as "60s"`},
	"ackTimeoutMillis": {"ackTimeout", `here it is ackTimeout, with a unit, such as "30s"`},
	"retryEnable":      {"reconsumeBackoff", "here reconsumeBackoff subscribes to the retry topic"},
	"enableRetry":      {"reconsumeBackoff", "here reconsumeBackoff subscribes to the retry topic"},
	"deadLetterPolicy": {"maxRedeliverCount", "here its fields are keys of the consumer"},
}

// hint returns a text that suggests a known key in place of an unknown one; "" if no key is similar.
func hint(name string, known []string) string {
	if java, found := javaKeys[name]; found && slices.Contains(known, java.key) {
		return " (" + java.text + ")"
	}
	name = strings.ToLower(name)
	nearest, least := "", 0
	for _, key := range known {
		most := len(key) / 3
		if d := distance(name, strings.ToLower(key), most); d <= most && (nearest == "" || d < least) {
			nearest, least = key, d
		}
	}
	if nearest == "" {
		return ""
	}
	return " (did you mean " + nearest + "?)"
}

// distance returns how many bytes have to be added, removed or changed to turn a into b (Levenshtein). If their lengths
// differ by more than most, it returns most+1.
func distance(a, b string, most int) int {
	if max(len(a)-len(b), len(b)-len(a)) > most {
		return most + 1
	}
	row := make([]int, len(b)+1) // row[j] is the distance of a's first i bytes from b's first j
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := i
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
