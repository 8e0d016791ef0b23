// Prints readability figures of the handwritten source: function lengths, line widths, retired
// words, type assertions, folders, comments and imports. Tests, generated code and data are left
// out.
//
//   node scripts/code-metrics.ts [--json] [--worst N] [--root DIR]
//
// --worst lists the N longest functions and the N most used retired words.

import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import ts from 'typescript';
import { parseCommandLine } from './command-line.ts';
import retired from './lint/retired-words.json' with { type: 'json' };

const widthLimit = 110;
const retiredNames = new Set([...retired.participles, ...Object.keys(retired.terms)]);

interface SourceFile {
  name: string;
  text: string;
  tree: ts.SourceFile;
}

interface FunctionSize {
  name: string;
  place: string;
  lines: number;
}

const { values: options } = parseCommandLine(import.meta.filename, {
  options: {
    json: { type: 'boolean', default: false },
    worst: { type: 'string', default: '0' },
    root: { type: 'string', default: path.join(import.meta.dirname, '..') },
  },
});

const files = readSources(options.root);
const functions = files.flatMap(functionSizes).sort((left, right) => right.lines - left.lines);
const words = countRetiredWords(files);
const imports = importGraph(files);
const lines = files.flatMap(({ text }) => text.replace(/\n$/, '').split('\n'));
const kiloLines = lines.length / 1000;

const figures: Record<string, number | string> = {
  folders: new Set(files.map(({ name }) => path.dirname(name))).size,
  files: files.length,
  lines: lines.length,
  'functions over 50 lines': functions.filter((size) => size.lines > 50).length,
  'functions over 100 lines': functions.filter((size) => size.lines > 100).length,
  'longest function (lines)': functions[0]?.lines ?? 0,
  [`lines over ${widthLimit} columns`]: lines.filter((line) => line.length > widthLimit).length,
  'retired words': [...words.values()].reduce((sum, count) => sum + count, 0),
  '`as` assertions per 1,000 lines': perKiloLine(countNodes(isAssertion)),
  '`any` types per 1,000 lines': perKiloLine(
    countNodes((node) => node.kind === ts.SyntaxKind.AnyKeyword) + countAliasUses(),
  ),
  'comment lines (%)': percent(files.reduce((sum, file) => sum + commentLines(file), 0) / lines.length),
  'import cycles': countCycles(imports),
  'longest import chain': longestChain(imports),
};

if (options.json) console.log(JSON.stringify(figures, null, 2));
else for (const [label, value] of Object.entries(figures)) console.log(`${label.padEnd(34)} ${value}`);
printWorst(Number(options.worst));

function readSources(root: string): SourceFile[] {
  return ['src/**/*.ts', 'clients/*/src/**/*.ts', 'scripts/**/*.ts']
    .flatMap((pattern) => globSync(pattern, { cwd: root }))
    .map((name) => name.split(path.sep).join('/'))
    .filter((name) => !/^src\/contract\/|\/generated\/|\/node_modules\//.test(name))
    .sort()
    .map((name) => {
      const text = readFileSync(path.join(root, name), 'utf8');
      return { name, text, tree: ts.createSourceFile(name, text, ts.ScriptTarget.Latest, true) };
    });
}

function visit(node: ts.Node, callback: (node: ts.Node) => void): void {
  callback(node);
  node.forEachChild((child) => visit(child, callback));
}

function functionSizes({ name, tree }: SourceFile): FunctionSize[] {
  const sizes: FunctionSize[] = [];
  visit(tree, (node) => {
    if (!ts.isFunctionLike(node) || !('body' in node) || node.body === undefined) return;
    const firstLine = tree.getLineAndCharacterOfPosition(node.getStart()).line;
    const lastLine = tree.getLineAndCharacterOfPosition(node.end).line;
    sizes.push({
      name: functionName(node),
      place: `${name}:${firstLine + 1}`,
      lines: lastLine - firstLine + 1,
    });
  });
  return sizes;
}

function functionName(node: ts.SignatureDeclaration): string {
  if (node.name !== undefined) return node.name.getText();
  return ts.isVariableDeclaration(node.parent) || ts.isPropertyAssignment(node.parent)
    ? node.parent.name.getText()
    : '(anonymous)';
}

/** How often each retired word is declared as a name: a variable, a parameter, a function or a type. */
function countRetiredWords(sources: readonly SourceFile[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { tree } of sources) {
    visit(tree, (node) => {
      if (!isDeclaredName(node) || !retiredNames.has(node.text)) return;
      counts.set(node.text, (counts.get(node.text) ?? 0) + 1);
    });
  }
  return counts;
}

function isDeclaredName(node: ts.Node): node is ts.Identifier {
  if (!ts.isIdentifier(node)) return false;
  const { parent } = node;
  if (ts.isBindingElement(parent)) return parent.name === node;
  return (
    (ts.isVariableDeclaration(parent) ||
      ts.isParameter(parent) ||
      ts.isFunctionDeclaration(parent) ||
      ts.isInterfaceDeclaration(parent) ||
      ts.isTypeAliasDeclaration(parent) ||
      ts.isPropertySignature(parent)) &&
    parent.name === node
  );
}

function isAssertion(node: ts.Node): boolean {
  return ts.isAsExpression(node) && !(ts.isTypeReferenceNode(node.type) && node.type.getText() === 'const');
}

function countNodes(matches: (node: ts.Node) => boolean): number {
  let count = 0;
  for (const { tree } of files) visit(tree, (node) => (count += Number(matches(node))));
  return count;
}

/** Uses of names that only stand for `any`, such as `type Any = any`. */
function countAliasUses(): number {
  let count = 0;
  for (const { tree } of files) {
    const aliases = new Set<string>();
    visit(tree, (node) => {
      if (ts.isTypeAliasDeclaration(node) && node.type.kind === ts.SyntaxKind.AnyKeyword)
        aliases.add(node.name.text);
    });
    if (aliases.size > 0)
      visit(
        tree,
        (node) => (count += Number(ts.isTypeReferenceNode(node) && aliases.has(node.typeName.getText()))),
      );
  }
  return count;
}

function commentLines({ text, tree }: SourceFile): number {
  const commentedLines = new Set<number>();
  const scanner = ts.createScanner(ts.ScriptTarget.Latest, false, ts.LanguageVariant.Standard, text);
  for (let kind = scanner.scan(); kind !== ts.SyntaxKind.EndOfFileToken; kind = scanner.scan()) {
    if (kind !== ts.SyntaxKind.SingleLineCommentTrivia && kind !== ts.SyntaxKind.MultiLineCommentTrivia)
      continue;
    const firstLine = tree.getLineAndCharacterOfPosition(scanner.getTokenStart()).line;
    const lastLine = tree.getLineAndCharacterOfPosition(scanner.getTokenEnd()).line;
    for (let line = firstLine; line <= lastLine; line += 1) commentedLines.add(line);
  }
  return commentedLines.size;
}

function importGraph(sources: readonly SourceFile[]): Map<string, string[]> {
  const names = new Set(sources.map(({ name }) => name));
  return new Map(
    sources.map(({ name, tree }) => [name, localImports(name, tree).filter((target) => names.has(target))]),
  );
}

function localImports(name: string, tree: ts.SourceFile): string[] {
  return tree.statements.flatMap((statement) => {
    if (!ts.isImportDeclaration(statement) && !ts.isExportDeclaration(statement)) return [];
    const { moduleSpecifier } = statement;
    if (moduleSpecifier === undefined || !ts.isStringLiteral(moduleSpecifier)) return [];
    return moduleSpecifier.text.startsWith('.')
      ? [path.posix.join(path.posix.dirname(name), moduleSpecifier.text)]
      : [];
  });
}

/** Strongly connected components of more than one file, by Tarjan's algorithm. */
function countCycles(graph: Map<string, string[]>): number {
  const index = new Map<string, number>();
  const lowestIndex = new Map<string, number>();
  const stack: string[] = [];
  let cycles = 0;
  const connect = (name: string): void => {
    index.set(name, index.size);
    lowestIndex.set(name, index.get(name) ?? 0);
    stack.push(name);
    for (const target of graph.get(name) ?? []) {
      if (!index.has(target)) connect(target);
      if (stack.includes(target))
        lowestIndex.set(name, Math.min(lowestIndex.get(name) ?? 0, lowestIndex.get(target) ?? 0));
    }
    if (lowestIndex.get(name) !== index.get(name)) return;
    const component = stack.splice(stack.indexOf(name));
    if (component.length > 1) cycles += 1;
  };
  for (const name of graph.keys()) if (!index.has(name)) connect(name);
  return cycles;
}

function longestChain(graph: Map<string, string[]>): number {
  const depths = new Map<string, number>();
  const depth = (name: string): number => {
    const cachedDepth = depths.get(name);
    if (cachedDepth !== undefined) return cachedDepth;
    depths.set(name, 1);
    const result = 1 + Math.max(0, ...(graph.get(name) ?? []).map(depth));
    depths.set(name, result);
    return result;
  };
  return Math.max(0, ...[...graph.keys()].map(depth));
}

function perKiloLine(count: number): number {
  return Math.round((count / kiloLines) * 10) / 10;
}

function percent(share: number): number {
  return Math.round(share * 1000) / 10;
}

function printWorst(count: number): void {
  if (count === 0) return;
  console.log('\nlongest functions');
  for (const { name, place, lines: length } of functions.slice(0, count))
    console.log(`${String(length).padStart(5)} ${name}  ${place}`);
  console.log('\nmost used retired words');
  const ranking = [...words].sort(([, left], [, right]) => right - left);
  for (const [word, uses] of ranking.slice(0, count)) console.log(`${String(uses).padStart(5)} ${word}`);
}
