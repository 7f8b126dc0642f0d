package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// suite has the parsed test files of a package.
type suite struct {
	fset  *token.FileSet
	files []*file
}

type file struct {
	path  string
	text  []byte
	ast   *ast.File
	edits []edit
	base  int
}

// edit replaces a piece of a file.
type edit struct {
	from, to token.Pos
	with     string
}

// parseSuite reads the test files that are built by default, and records the edits.
func parseSuite(dir string) (*suite, error) {
	s := &suite{fset: token.NewFileSet()}
	paths, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	for _, p := range paths {
		if built, err := build.Default.MatchFile(dir, filepath.Base(p)); err != nil || !built {
			continue
		}
		f, err := s.parse(p)
		if err != nil {
			return nil, err
		}
		f.edit()
		s.files = append(s.files, f)
	}
	if len(s.files) == 0 {
		return nil, fmt.Errorf("no tests in %s", dir)
	}
	return s, nil
}

func (s *suite) parse(path string) (*file, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	parsed, err := parser.ParseFile(s.fset, path, text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	return &file{path: path, text: text, ast: parsed, base: s.fset.File(parsed.Pos()).Base()}, nil
}

func (f *file) source(n ast.Node) string {
	return string(f.text[int(n.Pos())-f.base : int(n.End())-f.base])
}

func (f *file) replace(from, to token.Pos, with string) {
	f.edits = append(f.edits, edit{from, to, with})
}

// rewritten returns the text with its edits, which do not overlap.
func (f *file) rewritten() []byte {
	slices.SortFunc(f.edits, func(a, b edit) int { return cmp.Compare(a.from, b.from) })
	var out []byte
	at := 0
	for _, e := range f.edits {
		out = append(append(out, f.text[at:int(e.from)-f.base]...), e.with...)
		at = int(e.to) - f.base
	}
	return append(out, f.text[at:]...)
}

// edit makes tests subscribe with SubscribeThrough, replaces the broker's addresses, makes type assertions see the
// inner consumer, and gives each run its own topics.
func (f *file) edit() {
	f.redirect()
	for _, d := range f.ast.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		ast.Inspect(fn, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if sel := subscription(n); sel != nil {
					f.replace(n.Pos(), n.Args[0].Pos(), "SubscribeThrough("+f.source(sel.X)+", ")
				}
			case *ast.TypeAssertExpr:
				if consumerType(n) != "" {
					f.replace(n.X.Pos(), n.X.End(), "innerOf("+f.source(n.X)+")")
				}
			}
			return true
		})
		f.freshTopics(fn)
	}
}

// subscription returns the selector of a call of a client's Subscribe.
func subscription(call *ast.CallExpr) *ast.SelectorExpr {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != "Subscribe" || len(call.Args) != 1 {
		return nil
	}
	return sel
}

// consumerType returns the name of the unexported type in a type assertion of a consumer.
func consumerType(n *ast.TypeAssertExpr) string {
	star, ok := n.Type.(*ast.StarExpr)
	if !ok {
		return ""
	}
	name, ok := star.X.(*ast.Ident)
	if !ok {
		return ""
	}
	switch name.Name {
	case "consumer", "multiTopicConsumer", "regexConsumer", "zeroQueueConsumer":
		if _, ok := n.X.(*ast.Ident); ok {
			return name.Name
		}
	}
	return ""
}

var local = regexp.MustCompile(`localhost:(6650|8080)\b`)

// redirect replaces addresses. Constants with addresses become variables.
func (f *file) redirect() {
	found := func(n ast.Node) (lits []*ast.BasicLit) {
		ast.Inspect(n, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && local.MatchString(lit.Value) {
				lits = append(lits, lit)
			}
			return true
		})
		return lits
	}
	for _, lit := range found(f.ast) {
		f.replace(lit.Pos(), lit.End(), "redirected("+lit.Value+")")
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if d, ok := n.(*ast.GenDecl); ok && d.Tok == token.CONST && len(found(d)) > 0 {
			f.replace(d.Pos(), d.Pos()+token.Pos(len("const")), "var")
		}
		return true
	})
}

// redirectConstants redirects the addresses in a file that is not a test.
func redirectConstants(path string) error {
	s := &suite{fset: token.NewFileSet()}
	f, err := s.parse(path)
	if err != nil {
		return err
	}
	f.redirect()
	if len(f.edits) == 0 {
		return fmt.Errorf("%s has no address to replace", path)
	}
	return os.WriteFile(path, f.rewritten(), 0o644)
}

var topicIdent = regexp.MustCompile(`(?i)topic`)

// freshTopics adds the run's suffix to literal topic names. It finds the names in assignments to variables with "topic"
// in their names, and in the options Topic and TopicsPattern. Then it replaces these names everywhere in fn.
func (f *file) freshTopics(fn *ast.FuncDecl) {
	names := map[string]bool{}
	add := func(e ast.Expr) {
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			name, err := strconv.Unquote(lit.Value)
			for _, fixed := range fixedTopics {
				if found := fixed.FindStringSubmatch(name); err == nil && found != nil {
					names[found[1]] = true
				}
			}
		}
	}
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && (key.Name == "Topic" || key.Name == "TopicsPattern") {
				add(n.Value)
			}
		case *ast.AssignStmt:
			for i, to := range n.Lhs {
				if id, ok := to.(*ast.Ident); ok && len(n.Rhs) == len(n.Lhs) && topicIdent.MatchString(id.Name) {
					add(n.Rhs[i])
				}
			}
		}
		return true
	})
	ast.Inspect(fn, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING || local.MatchString(lit.Value) {
			return true
		}
		text, err := strconv.Unquote(lit.Value)
		if err != nil {
			return true
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if before, after, ok := cutName(text, name); ok {
				with := "fresh(" + strconv.Quote(before) + ")"
				if after != "" {
					with = "(" + with + " + " + strconv.Quote(after) + ")"
				}
				f.replace(lit.Pos(), lit.End(), with)
				break
			}
		}
		return true
	})
}

// fixedTopics match a full or short topic name, and a pattern of topic names. Their group is the local name, or its
// fixed beginning.
var fixedTopics = []*regexp.Regexp{
	regexp.MustCompile(`^(?:(?:non-)?persistent://public/default/)?([A-Za-z][A-Za-z0-9_-]*[A-Za-z0-9])$`),
	regexp.MustCompile(`^persistent://public/default/([A-Za-z][A-Za-z0-9_-]*-)\.\*$`),
}

// cutName splits text before and after a topic's name. It reports false if text is neither the name nor a path that
// contains it.
func cutName(text, name string) (before, after string, ok bool) {
	i := strings.Index(text, name)
	if i < 0 || i > 0 && text[i-1] != '/' {
		return "", "", false
	}
	before, after = text[:i+len(name)], text[i+len(name):]
	return before, after, after == "" || after[0] == '/' || strings.HasSuffix(name, "-") ||
		strings.HasPrefix(after, "-partition-")
}
