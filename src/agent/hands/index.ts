// The room that puts plugins and services together.
export { openHands, type Hands } from './hands.ts';
