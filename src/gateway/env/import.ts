// A `.env` text as the variables it holds, or a Problem that names every line at fault: all of it or nothing.
import { Problem, type ProblemDetail } from '../../kernel/problem.ts';
import { parseDotenv } from './dotenv.ts';
import { faultOf, type Fault } from './variable.ts';

const maximumBytes = 256 * 1024;
const maximumKeys = 500;
// More than this says nothing new to whoever has to repair the text.
const maximumDetails = 16;

/** By key, in the order of the text; of a key that is there twice the later value. */
export function variablesIn(content: string, isReserved: (key: string) => boolean): Map<string, string> {
  if (Buffer.byteLength(content, 'utf8') > maximumBytes) {
    throw new Problem('too_large', 'request_too_large', 'The text is larger than 256 KiB.', {
      param: 'content',
    });
  }
  const { entries, faults } = parseDotenv(content);
  const details: ProblemDetail[] = faults.map(({ line, message }) => detail(line, message));
  let code: Fault['code'] = 'invalid_request';
  for (const { key, value, line } of entries) {
    const fault = faultOf(key, value, isReserved);
    if (fault === null) continue;
    if (details.length === 0) code = fault.code;
    details.push(detail(line, `the ${fault.member} ${fault.message}`));
  }
  const variables = new Map(entries.map(({ key, value }) => [key, value]));
  if (variables.size > maximumKeys)
    details.push({ path: 'content', message: `holds ${variables.size} keys; ${maximumKeys} is the most` });
  if (details.length > 0) {
    throw new Problem('bad_request', code, `Nothing was imported: ${details[0]?.message}.`, {
      param: 'content',
      details: details.slice(0, maximumDetails),
    });
  }
  return variables;
}

// No value is repeated: the line says enough.
function detail(line: number, message: string): ProblemDetail {
  return { path: 'content', message: `line ${line}: ${message}` };
}
