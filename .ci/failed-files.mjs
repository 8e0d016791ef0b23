// failed-files.mjs REPORT                    prints the files of a vitest JSON report that failed, one a line
// failed-files.mjs REPORT --replace-by AGAIN puts the results of a second run of those files into REPORT
import { readFileSync, writeFileSync } from 'node:fs';

const [path, , againPath] = process.argv.slice(2);
const report = JSON.parse(readFileSync(path, 'utf8'));
const hasFailed = (file) =>
  file.status === 'failed' || file.assertionResults.some(({ status }) => status === 'failed');

if (againPath === undefined) {
  const names = report.testResults.filter(hasFailed).map(({ name }) => name);
  for (const name of new Set(names)) console.log(name);
} else {
  replaceFailedFiles(JSON.parse(readFileSync(againPath, 'utf8')));
  writeFileSync(path, JSON.stringify(report));
}

// A file has one result for each project that runs it, so all results of a failed file are replaced.
function replaceFailedFiles(again) {
  const names = new Set(again.testResults.map(({ name }) => name));
  const stays = report.testResults.filter(({ name }) => !names.has(name));
  report.secondRuns = [...names];
  report.testResults = [...stays, ...again.testResults];
  const tests = report.testResults.flatMap(({ assertionResults }) => assertionResults);
  const count = (...statuses) => tests.filter(({ status }) => statuses.includes(status)).length;
  report.numPassedTests = count('passed');
  report.numFailedTests = count('failed');
  report.numPendingTests = count('pending', 'skipped');
  report.numTodoTests = count('todo');
}
