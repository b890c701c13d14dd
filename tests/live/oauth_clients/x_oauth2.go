// golang.org/x/oauth2, for a test in another process, as driver.py describes it.
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"golang.org/x/oauth2"
)

type configuration struct {
	AuthorizationEndpoint string `json:"authorization_endpoint"`
	TokenEndpoint         string `json:"token_endpoint"`
	Whois                 string
	ClientID              string `json:"client_id"`
	ClientSecret          string `json:"client_secret"`
	RedirectURI           string `json:"redirect_uri"`
	Scope                 string
	Method                string
	PKCE                  bool
}

// The default, "auto", sends HTTP Basic, and after a refusal the form.
var authStyles = map[string]oauth2.AuthStyle{
	"auto":                oauth2.AuthStyleAutoDetect,
	"none":                oauth2.AuthStyleInParams,
	"client_secret_basic": oauth2.AuthStyleInHeader,
	"client_secret_post":  oauth2.AuthStyleInParams,
}

type session struct {
	oauth2.Config
	whoisURL string
	verifier string
	token    *oauth2.Token
}

func newSession(given configuration) *session {
	s := &session{whoisURL: given.Whois}
	s.ClientID = given.ClientID
	s.ClientSecret = given.ClientSecret
	s.RedirectURL = given.RedirectURI
	s.Scopes = []string{given.Scope}
	s.Endpoint = oauth2.Endpoint{
		AuthURL:   given.AuthorizationEndpoint,
		TokenURL:  given.TokenEndpoint,
		AuthStyle: authStyles[given.Method],
	}
	if given.PKCE {
		s.verifier = randomText()
	}
	return s
}

func (s *session) authorize() (interface{}, error) {
	var options []oauth2.AuthCodeOption
	if s.verifier != "" {
		digest := sha256.Sum256([]byte(s.verifier))
		challenge := base64.RawURLEncoding.EncodeToString(digest[:])
		options = []oauth2.AuthCodeOption{
			oauth2.SetAuthURLParam("code_challenge", challenge),
			oauth2.SetAuthURLParam("code_challenge_method", "S256"),
		}
	}
	return s.AuthCodeURL(randomText(), options...), nil
}

func (s *session) exchange(callback string) (interface{}, error) {
	arrived, err := url.Parse(callback)
	if err != nil {
		return nil, err
	}
	var options []oauth2.AuthCodeOption
	if s.verifier != "" {
		options = append(options, oauth2.SetAuthURLParam("code_verifier", s.verifier))
	}
	token, err := s.Exchange(context.Background(), arrived.Query().Get("code"), options...)
	if err != nil {
		return nil, err
	}
	s.token = token
	return []interface{}{token.Type(), token.Extra("expires_in")}, nil
}

// A token that is not valid any more is refreshed by the library itself.
func (s *session) refresh() (interface{}, error) {
	s.token.Expiry = time.Now().Add(-time.Second)
	token, err := s.TokenSource(context.Background(), s.token).Token()
	if err != nil {
		return nil, err
	}
	s.token = token
	return []interface{}{token.Type(), token.Extra("expires_in")}, nil
}

func (s *session) whois() (interface{}, error) {
	response, err := s.Client(context.Background(), s.token).Get(s.whoisURL)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", response.Status, body)
	}
	return json.RawMessage(body), nil
}

func (s *session) answer(call []string) (interface{}, error) {
	switch call[0] {
	case "authorize":
		return s.authorize()
	case "exchange":
		return s.exchange(call[1])
	case "refresh":
		return s.refresh()
	case "whois":
		return s.whois()
	}
	return nil, fmt.Errorf("unknown method: %s", call[0])
}

func randomText() string {
	bytes := make([]byte, 32)
	if _, err := rand.Read(bytes); err != nil {
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(bytes)
}

func main() {
	var given configuration
	if err := json.Unmarshal([]byte(os.Args[1]), &given); err != nil {
		panic(err)
	}
	session := newSession(given)
	answers := json.NewEncoder(os.Stdout)
	for calls := bufio.NewScanner(os.Stdin); calls.Scan(); {
		var call []string
		if err := json.Unmarshal(calls.Bytes(), &call); err != nil {
			panic(err)
		}
		result, err := session.answer(call)
		if err != nil {
			answers.Encode(map[string]string{"error": err.Error()})
		} else {
			answers.Encode(map[string]interface{}{"result": result})
		}
	}
}
