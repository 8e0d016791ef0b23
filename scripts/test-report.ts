// Reads vitest's JSON reports for `.ci/run`.
//
//   node scripts/test-report.ts count REPORT...       failed tests by name, then `N passed, N failed`
//   node scripts/test-report.ts failed REPORT         the files that failed, one per line
//   node scripts/test-report.ts replace REPORT AGAIN  puts the results of a second run of files into REPORT

import { readFileSync, writeFileSync } from 'node:fs';
import { exitWithUsageError, parseCommandLine } from './command-line.ts';

interface FileResult {
  name: string;
  status: string;
  message: string;
  assertionResults: { status: string; fullName: string }[];
}

interface Report {
  numPassedTests: number;
  numFailedTests: number;
  numPendingTests?: number;
  numTodoTests?: number;
  testResults: FileResult[];
  /** Files that failed and ran a second time. */
  secondRuns?: string[];
}

const commands = { count, failed: printFailedFiles, replace: replaceFiles };
const { positionals } = parseCommandLine(import.meta.filename, { allowPositionals: true });
const [command = '', ...paths] = positionals;
if (!Object.hasOwn(commands, command))
  exitWithUsageError(import.meta.filename, `there is no command "${command}"`);
commands[command as keyof typeof commands](paths);

function count(reportPaths: readonly string[]): void {
  const totals = { passed: 0, failed: 0, skipped: 0 };
  for (const report of reportPaths.map(readReport)) {
    const brokenFiles = report.testResults.filter(failedOutsideOfTests);
    for (const file of report.testResults) printFailedTests(file);
    for (const file of brokenFiles) console.log(`failed: ${file.name}: ${file.message}`);
    for (const file of report.secondRuns ?? []) console.log(`had a second run: ${file}`);
    totals.passed += report.numPassedTests;
    totals.failed += report.numFailedTests + brokenFiles.length;
    totals.skipped += (report.numPendingTests ?? 0) + (report.numTodoTests ?? 0);
  }
  if (totals.skipped > 0) console.log(`${totals.skipped} skipped, each with its reason in the output above`);
  console.log(`${totals.passed} passed, ${totals.failed} failed`);
}

function printFailedTests(file: FileResult): void {
  for (const test of file.assertionResults)
    if (test.status === 'failed') console.log(`failed: ${file.name}: ${test.fullName}`);
}

function printFailedFiles([reportPath = '']: readonly string[]): void {
  const { testResults } = readReport(reportPath);
  const names = testResults.filter(({ status }) => status === 'failed').map(({ name }) => name);
  for (const name of new Set(names)) console.log(name);
}

// A file has one result for each project that runs it. A second run of the file replaces all of them.
function replaceFiles([reportPath = '', againPath = '']: readonly string[]): void {
  const report = readReport(reportPath);
  const secondReport = readReport(againPath);
  const names = new Set(secondReport.testResults.map(({ name }) => name));
  const testResults = [
    ...report.testResults.filter(({ name }) => !names.has(name)),
    ...secondReport.testResults,
  ];
  const tests = testResults.flatMap(({ assertionResults }) => assertionResults);
  const countOf = (...statuses: string[]) => tests.filter(({ status }) => statuses.includes(status)).length;
  const replacedReport: Report = {
    ...report,
    numPassedTests: countOf('passed'),
    numFailedTests: countOf('failed'),
    numPendingTests: countOf('pending', 'skipped'),
    numTodoTests: countOf('todo'),
    testResults,
    secondRuns: [...names],
  };
  writeFileSync(reportPath, JSON.stringify(replacedReport));
}

function failedOutsideOfTests(file: FileResult): boolean {
  return file.status === 'failed' && file.assertionResults.every(({ status }) => status !== 'failed');
}

function readReport(reportPath: string): Report {
  return JSON.parse(readFileSync(reportPath, 'utf8')) as Report;
}
