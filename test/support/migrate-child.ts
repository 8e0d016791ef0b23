// Runs the migrations in a process of its own: `node migrate-child.ts OPTIONS DIRECTORY` prints how
// many files it applied, or that it was refused.
import { connect, migrate } from '../../src/kernel/data/database.ts';
import { silentLog } from './template.ts';

const [options = '', directory = ''] = process.argv.slice(2);
try {
  const database = await connect(JSON.parse(options), { log: silentLog });
  const { applied } = await migrate(database, { schema: 'house', directory, log: silentLog });
  await database.close();
  console.log(`applied ${applied.length}`);
} catch (error) {
  console.log(error instanceof Error && error.message.includes('is held by') ? 'refused' : String(error));
}
