// The door of the directory: the factory and what it asks of its surroundings.
export { directory, type DirectoryNeeds } from './directory.ts';
