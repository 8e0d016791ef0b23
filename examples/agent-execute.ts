// An agent that executes an instruction through the gateway.
// Run it beside `npm start`: npx node examples/agent-execute.ts "How do I stream an answer?"
import { readFile } from 'node:fs/promises';
import { AgentError, createAgentClient } from '@townhall/agent';

const baseUrl = process.env['TOWNHALL_AGENT_URL'] ?? 'http://127.0.0.1:5314';
const token =
  process.env['TOWNHALL_AGENT_TOKEN'] ?? (await readFile('data/agent/agent.token', 'utf8')).trim();
const agent = createAgentClient({ baseUrl, token });

const { name, status } = await agent.status.getStatus();
console.log(`The agent ${name} is ${status}.`);

try {
  const result = await agent.sessions.execute({
    instructions: process.argv[2] ?? 'How do I stream an answer?',
  });
  // A run of more than two minutes continues without the caller; then there is no text yet.
  console.log('text' in result ? result.text : `Still running: ${result.runId}`);
} catch (error) {
  if (!AgentError.isInstance(error)) throw error;
  console.error(`${error.code}: ${error.message} (request ${error.requestId})`);
  process.exitCode = 1;
}
