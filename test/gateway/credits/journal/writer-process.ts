// A process that writes to a journal, for tests that kill it:
//   node writer-process.ts PATH write     prints the usage id of each final line that is on disk
//   node writer-process.ts PATH fill N    writes N final lines and kills itself
//   node writer-process.ts PATH replay    prints the count of replayed charges
import { journalDirectory } from '../../../../src/gateway/credits/journal/directory.ts';
import type { Journal } from '../../../../src/gateway/credits/journal/journal.ts';
import { silentLog } from '../../../support/template.ts';
import { finalLine, sentLine } from './sample-lines.ts';

const [path = '', mode, count = '0'] = process.argv.slice(2);
const directory = journalDirectory({ path, log: silentLog });

if (mode === 'replay') {
  const [journal] = await directory.takeAbandoned();
  let charges = 0;
  for await (const batch of journal?.charges(0) ?? []) charges += batch.length;
  console.log(charges);
} else {
  const journal = await directory.open('gen-1');
  if (mode === 'fill') await fill(journal);
  await Promise.all(Array.from({ length: 16 }, (_, writer) => writeCalls(journal, writer)));
}

async function fill(journal: Journal): Promise<void> {
  for (let index = 1; index < Number(count); index += 1) {
    const seq = journal.append(finalLine(`use_${index}`));
    if (seq % 1_000 === 0) await journal.sync(seq);
  }
  await journal.sync(journal.append(finalLine('last')));
  process.kill(process.pid, 'SIGKILL');
}

async function writeCalls(journal: Journal, writer: number): Promise<void> {
  for (let index = 0; ; index += 1) {
    const usageId = `use_${writer}_${index}`;
    journal.append(sentLine(usageId));
    await journal.sync(journal.append(finalLine(usageId)));
    console.log(usageId);
  }
}
