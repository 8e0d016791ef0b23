// The console: web pages for a user on this machine, served beside an agent and never by it.
export { createConsole, type Console, type ConsoleOptions } from './console.ts';
export { consoleSettings, readConsoleConfig, type ConsoleConfig } from './config.ts';
