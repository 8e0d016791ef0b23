// Parses the text of a `.env` file into variables. One invalid line rejects the whole text; the Problem
// lists the invalid lines, 16 at most.
import { Problem, type ProblemDetail } from '../../kernel/problem.ts';
import { parseDotenv } from './dotenv.ts';
import { validateVariable, type KeyRules, type VariableError } from './variable.ts';

const maxBytes = 256 * 1024;
const maxKeys = 500;
const maxDetails = 16;

/** The variables by key, in the order of the text. If a key has several values, the last one counts. */
export function parseVariables(content: string, rules: KeyRules): Map<string, string> {
  if (Buffer.byteLength(content, 'utf8') > maxBytes) {
    throw new Problem('too_large', 'request_too_large', 'The text is larger than 256 KiB.', {
      param: 'content',
    });
  }
  const { entries, errors } = parseDotenv(content);
  const details: ProblemDetail[] = errors.map(({ line, message }) => lineDetail(line, message));
  let code: VariableError['code'] = 'invalid_request';
  for (const { key, value, line } of entries) {
    const error = validateVariable(key, value, rules);
    if (error === null) continue;
    if (details.length === 0) code = error.code;
    details.push(lineDetail(line, `the ${error.member} ${error.message}`));
  }
  const variables = new Map(entries.map(({ key, value }) => [key, value]));
  if (variables.size > maxKeys)
    details.push({ path: 'content', message: `contains ${variables.size} keys; the maximum is ${maxKeys}` });
  if (details.length > 0) {
    throw new Problem('bad_request', code, `Nothing was imported: ${details[0]?.message}.`, {
      param: 'content',
      details: details.slice(0, maxDetails),
    });
  }
  return variables;
}

// The text may contain secrets, so the message repeats only the line number.
function lineDetail(line: number, message: string): ProblemDetail {
  return { path: 'content', message: `line ${line}: ${message}` };
}
