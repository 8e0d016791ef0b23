// The scripts of the login page and of the page for device logins. The server assembles them from strings,
// which the project's type check does not see, so this test lets the compiler find undeclared names.
import ts from 'typescript';
import { describe, expect, test } from 'vitest';
import { loginPages } from '../../../src/gateway/login-page/index.ts';

const options: ts.CompilerOptions = {
  allowJs: true,
  checkJs: true,
  noEmit: true,
  target: ts.ScriptTarget.ES2024,
  lib: ['lib.es2024.d.ts', 'lib.dom.d.ts', 'lib.dom.iterable.d.ts'],
  types: [],
};
const fileName = 'script.js';
// "Cannot find name", without and with a suggestion.
const missingNameCodes = new Set([2304, 2552]);

function findMissingNames(script: string): string[] {
  const host = ts.createCompilerHost(options);
  const readLibrary = host.getSourceFile.bind(host);
  host.getSourceFile = (name, version) =>
    name === fileName ? ts.createSourceFile(name, script, version) : readLibrary(name, version);
  const program = ts.createProgram([fileName], options, host);
  return program
    .getSemanticDiagnostics(program.getSourceFile(fileName))
    .filter(({ code }) => missingNameCodes.has(code))
    .map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, ' '));
}

const pages = new Map(loginPages.map(([path, { body }]) => [path, body]));
const scripts = {
  '/login.js': pages.get('/login.js') ?? '',
  '/device': /<script>([\s\S]*)<\/script>/.exec(pages.get('/device') ?? '')?.[1] ?? '',
};

describe('the scripts of the pages', () => {
  test.each(Object.entries(scripts))('declare each name that %s uses', (_path, script) => {
    expect(script).toContain('async function call(');
    expect(findMissingNames(script)).toEqual([]);
    // Proves that the check works.
    expect(findMissingNames(`${script}\nmissing();`)).toEqual(["Cannot find name 'missing'."]);
  });
});
