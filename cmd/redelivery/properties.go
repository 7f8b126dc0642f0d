package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode/utf16"
)

// readProperties reads a file as java.util.Properties does. The first =, : or blank separates name and value, \ escapes
// a character, and a line that ends in \ continues in the next line.
func readProperties(path string) (map[string]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	props := map[string]string{}
	rest, line := strings.ReplaceAll(strings.ReplaceAll(string(data), "\r\n", "\n"), "\r", "\n"), 0
	for rest != "" {
		first := line + 1
		var logical strings.Builder
		for goesOn := true; goesOn && rest != ""; {
			var text string
			text, rest, _ = strings.Cut(rest, "\n")
			line++
			text = strings.TrimLeft(text, " \t\f")
			if logical.Len() == 0 && (strings.HasPrefix(text, "#") || strings.HasPrefix(text, "!")) {
				break
			}
			bare := strings.TrimRight(text, `\`)
			goesOn = (len(text)-len(bare))%2 == 1
			if goesOn {
				text = text[:len(text)-1]
			}
			logical.WriteString(text)
		}
		name, value := splitProperty(logical.String())
		if name == "" && value == "" {
			continue
		}
		name, nameErr := unescape(name)
		value, valueErr := unescape(value)
		if nameErr != nil || valueErr != nil {
			return nil, fmt.Errorf("%s:%d: \\u is not followed by four hexadecimal digits", path, first)
		}
		props[name] = value
	}
	return props, nil
}

// splitProperty cuts a line at the first =, : or blank that is not escaped.
func splitProperty(line string) (name, value string) {
	end := len(line)
	for i := 0; i < len(line); i++ {
		if line[i] == '\\' {
			i++
		} else if strings.ContainsRune("=: \t\f", rune(line[i])) {
			end = i
			break
		}
	}
	name, value = line[:end], strings.TrimLeft(line[end:], " \t\f")
	if value != "" && (value[0] == '=' || value[0] == ':') {
		value = strings.TrimLeft(value[1:], " \t\f")
	}
	return name, value
}

func unescape(s string) (string, error) {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			out.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case 't':
			out.WriteByte('\t')
		case 'n':
			out.WriteByte('\n')
		case 'r':
			out.WriteByte('\r')
		case 'f':
			out.WriteByte('\f')
		case 'u':
			units := []uint16{}
			for i--; strings.HasPrefix(s[i:], `\u`); i += 6 {
				n, err := strconv.ParseUint(s[i+2:min(i+6, len(s))], 16, 16)
				if err != nil || i+6 > len(s) {
					return "", fmt.Errorf("no character: %q", s[i:])
				}
				units = append(units, uint16(n))
			}
			i--
			out.WriteString(string(utf16.Decode(units)))
		default:
			out.WriteByte(s[i])
		}
	}
	return out.String(), nil
}
