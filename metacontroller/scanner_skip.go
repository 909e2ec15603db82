package metacontroller

// skip moves behind the value that begins here.
func (s *scanner) skip() error {
	switch c := s.peek(); {
	case c == '"':
		return s.skipString()
	case c == '{':
		return s.members(func([]byte) error { return s.skip() })
	case c == '[':
		return s.skipArray()
	case c == '-' || '0' <= c && c <= '9':
		return s.skipNumber()
	}
	return s.skipWord()
}

// members calls visit for every member of the object that begins here, with its
// quoted name and in front of its value.
func (s *scanner) members(visit func(quoted []byte) error) error {
	if s.depth++; s.depth > maxDepth || !s.take('{') {
		return errSyntax
	}
	defer func() { s.depth-- }()
	if s.close('}') {
		return nil
	}
	for {
		start := s.at
		if s.peek() != '"' || s.skipString() != nil {
			return errSyntax
		}
		quoted := s.text[start:s.at]
		if !s.take(':') {
			return errSyntax
		}
		if err := visit(quoted); err != nil {
			return err
		}
		switch {
		case s.take(','):
		case s.close('}'):
			return nil
		default:
			return errSyntax
		}
	}
}

func (s *scanner) skipArray() error {
	if s.depth++; s.depth > maxDepth || !s.take('[') {
		return errSyntax
	}
	defer func() { s.depth-- }()
	if s.close(']') {
		return nil
	}
	for {
		if err := s.skip(); err != nil {
			return err
		}
		switch {
		case s.take(','):
		case s.close(']'):
			return nil
		default:
			return errSyntax
		}
	}
}

// close moves behind c, but not behind the white space there, which is not part
// of the value.
func (s *scanner) close(c byte) bool {
	s.space()
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

func (s *scanner) skipString() error {
	for i := s.at + 1; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '"':
			s.at = i + 1
			return nil
		case c < ' ':
			return errSyntax
		case c == '\\':
			n := escapeLength(s.text[i:])
			if n == 0 {
				return errSyntax
			}
			i += n - 1
		}
	}
	return errSyntax
}

// escapeLength is the length of the escape that text begins with, 0 when it is
// none.
func escapeLength(text []byte) int {
	if len(text) < 2 {
		return 0
	}
	switch text[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		for i := 2; i < 6; i++ {
			if i >= len(text) || !isHex(text[i]) {
				return 0
			}
		}
		return 6
	}
	return 0
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func (s *scanner) skipNumber() error {
	if s.peek() == '-' {
		s.at++
	}
	if s.peek() == '0' {
		s.at++
	} else if s.digits() == 0 {
		return errSyntax
	}
	if s.peek() == '.' {
		s.at++
		if s.digits() == 0 {
			return errSyntax
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.at++
		if c := s.peek(); c == '+' || c == '-' {
			s.at++
		}
		if s.digits() == 0 {
			return errSyntax
		}
	}
	return nil
}

// digits moves behind the digits here and returns how many there were.
func (s *scanner) digits() (n int) {
	for c := s.peek(); '0' <= c && c <= '9'; c = s.peek() {
		s.at++
		n++
	}
	return n
}

func (s *scanner) skipWord() error {
	for _, word := range []string{"null", "true", "false"} {
		if rest := s.text[s.at:]; len(rest) >= len(word) && string(rest[:len(word)]) == word {
			s.at += len(word)
			return nil
		}
	}
	return errSyntax
}
