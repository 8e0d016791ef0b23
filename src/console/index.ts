// The console: web pages for a user on this machine. It has a server of its own; the agent serves no page.
export { createConsole, type Console, type ConsoleOptions } from './console.ts';
export { consoleSettings, readConsoleConfig, type ConsoleConfig } from './config.ts';
