package inbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// explained adds to an error the operation that failed. The result wraps ErrNoTable if the table is missing. If the
// database does not understand the statement, the result's text asks whether the dialect is right. For a nil error,
// explained returns nil.
func (i *Inbox) explained(operation string, err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("inbox: %s (%v): %w", operation, i.dialect, err)
	code, missing := codeOf(err), i.dialect.missing
	if code == missing || code == "" && strings.Contains(err.Error(), missing) {
		return fmt.Errorf("%w: table %s: %w", ErrNoTable, i.table, err)
	}
	if containsAny(err.Error(), "syntax", "unrecognized token", "no such function", "Error 1305") {
		return fmt.Errorf("%w; New got the dialect %v: does the database use it?", err, i.dialect)
	}
	if containsAny(err.Error(), busy...) {
		return fmt.Errorf("%w; another connection writes: does each connection have a busy_timeout?", err)
	}
	return err
}

// busy are texts of SQLite drivers for a database on which another connection has a lock.
var busy = []string{"database is locked", "database table is locked", "SQLITE_BUSY"}

func containsAny(text string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}

// abortedTransaction is the SQLSTATE of a statement that Postgres refuses because an earlier one failed.
const abortedTransaction = "25P02"

// codeOf returns the SQLSTATE of an error of a Postgres driver, or "".
func codeOf(err error) string {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState()
	}
	return ""
}

// isTransient reports whether a transaction may succeed if it begins again. database/sql has no common errors, so
// isTransient recognizes the errors of MySQL and SQLite drivers by their texts.
func isTransient(err error) bool {
	switch codeOf(err) {
	case "40001", "40P01": // serialization failure, deadlock
		return true
	case "":
	default:
		return false
	}
	return containsAny(err.Error(), append([]string{"Error 1213", "Error 1205"}, busy...)...)
}
