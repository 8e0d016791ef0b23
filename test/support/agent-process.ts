// An agent in a process of its own, for the tests that kill it. It reads its settings from the
// environment as the command does; TEST_DATABASE names its database. One of its tools never ends.
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createAgent } from '../../src/agent/compose.ts';
import { readAgentConfig } from '../../src/agent/config.ts';
import { definePlugin } from '../../src/agent/plugins/index.ts';
import { connect } from '../../src/kernel/data/database.ts';
import { createLog } from '../../src/kernel/log.ts';
import { createRedactor } from '../../src/kernel/secrets/secret.ts';

const redactor = createRedactor();
const log = createLog({ level: 'warn', redactor });
const database = await connect(JSON.parse(process.env['TEST_DATABASE'] ?? '{}'), { log });
const endless = definePlugin<{ hang: object }>({
  name: 'endless',
  title: 'Endless',
  description: 'Never ends.',
  actions: {
    hang: {
      description: 'Writes the file `begun`, and never ends.',
      input: { type: 'object' },
      async run(_, { workspace }) {
        await writeFile(join(workspace, 'begun'), '');
        await new Promise(() => {});
      },
    },
  },
});
const agent = await createAgent(readAgentConfig({}, process.env), {
  log,
  redactor,
  database,
  plugins: [endless],
});
const { url } = await agent.listen();
process.stdout.write(`${JSON.stringify({ msg: 'listening', url })}\n`);
process.once('SIGTERM', () => {
  void agent.close().then(() => database.close());
});
