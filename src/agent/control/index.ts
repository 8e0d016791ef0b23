// The room of what commands on this machine may ask.
export { controlPath, openControl } from './control.ts';
