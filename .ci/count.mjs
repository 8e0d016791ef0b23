// Prints the failed tests of vitest's JSON reports by name, then `N skipped` and `N passed, N failed`.
import { readFileSync } from 'node:fs';

let [passed, failed, skipped] = [0, 0, 0];
for (const path of process.argv.slice(2)) {
  const report = JSON.parse(readFileSync(path, 'utf8'));
  for (const file of report.testResults ?? []) {
    const tests = file.assertionResults.filter(({ status }) => status === 'failed');
    for (const test of tests) console.log(`failed: ${file.name}: ${test.fullName}`);
    // A file that fails outside of its tests counts as one failure.
    const broken = file.status === 'failed' && tests.length === 0;
    if (broken) console.log(`failed: ${file.name}: ${file.message}`);
    failed += broken ? 1 : 0;
  }
  for (const file of report.secondRuns ?? []) console.log(`passed in a second run only: ${file}`);
  passed += report.numPassedTests;
  failed += report.numFailedTests;
  skipped += (report.numPendingTests ?? 0) + (report.numTodoTests ?? 0);
}
if (skipped > 0) console.log(`${skipped} skipped, each with its reason in the output above`);
console.log(`${passed} passed, ${failed} failed`);
