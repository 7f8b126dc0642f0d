package main

import (
	"go/ast"
	"go/token"
	"regexp"
	"strings"
)

// test is one of upstream's tests.
type test struct {
	name      string
	leftOut   string // why it is not run; "" if it is run
	keyShared bool   // uses Key_Shared, where a consumer's random name decides which keys it gets
}

// facts has what a function does, itself or through functions that it calls.
type facts struct {
	subscribes, docker, transactions, internals, quotas, secured, keyShared, skips bool
	calls                                                                          []string
}

func (f *facts) add(g facts) {
	f.subscribes = f.subscribes || g.subscribes
	f.docker = f.docker || g.docker
	f.transactions = f.transactions || g.transactions
	f.internals = f.internals || g.internals
	f.quotas = f.quotas || g.quotas
	f.secured = f.secured || g.secured
	f.keyShared = f.keyShared || g.keyShared
	f.skips = f.skips || g.skips
}

func (f *facts) leftOut() string {
	switch {
	case f.skips:
		return "skips itself"
	case f.docker:
		return "starts a broker in Docker"
	case f.transactions:
		return "transactions, which need a coordinator"
	case f.internals:
		return "reaches into the type of the consumer"
	case f.quotas:
		return "sets quotas on public/default"
	case f.secured:
		return "wants a broker with TLS, tokens, passwords or OAuth2"
	}
	return ""
}

// tests returns the tests that subscribe or, with everything, all tests.
func (s *suite) tests(everything bool) []test {
	functions := map[string]facts{}
	for _, f := range s.files {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Body != nil {
				functions[fn.Name.Name] = factsOf(fn)
			}
		}
	}
	var tests []test
	for name := range functions {
		if !testName.MatchString(name) || name == "TestMain" {
			continue
		}
		all := facts{}
		collect(name, functions, map[string]bool{}, &all)
		if all.subscribes || everything {
			tests = append(tests, test{name, all.leftOut(), all.keyShared})
		}
	}
	return tests
}

var testName = regexp.MustCompile(`^Test([^a-z]|$)`)

func collect(name string, functions map[string]facts, seen map[string]bool, all *facts) {
	f, ok := functions[name]
	if !ok || seen[name] {
		return
	}
	seen[name] = true
	all.add(f)
	for _, called := range f.calls {
		collect(called, functions, seen, all)
	}
}

func factsOf(fn *ast.FuncDecl) (f facts) {
	// type assertions that use only ok: _, ok := consumer.(*zeroQueueConsumer)
	onlyAsked := map[ast.Expr]bool{}
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			f.subscribes = f.subscribes || subscription(n) != nil
		case *ast.AssignStmt:
			if id, ok := n.Lhs[0].(*ast.Ident); ok && id.Name == "_" && len(n.Rhs) == 1 {
				onlyAsked[n.Rhs[0]] = true
			}
		case *ast.TypeAssertExpr:
			f.internals = f.internals || consumerType(n) != "" && !onlyAsked[n]
		case *ast.Ident:
			switch n.Name {
			case "serviceURLTLS", "webServiceURLTLS", "NewAuthenticationToken", "NewAuthenticationTokenFromFile",
				"NewAuthenticationTokenFromSupplier", "NewAuthenticationBasic", "NewAuthenticationOAuth2",
				"NewAuthenticationTLS":
				f.secured = true
			case "testcontainers":
				f.docker = true
			case "EnableTransaction", "NewTransaction":
				f.transactions = true
			case "KeyShared":
				f.keyShared = true
			case "Skip", "Skipf", "SkipNow":
				f.skips = true
			default:
				f.calls = append(f.calls, n.Name)
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING && strings.Contains(n.Value, "namespaces/public/default/") {
				f.quotas = true
			}
		}
		return true
	})
	return f
}
