"""APC score: faithfulness to a persona as the number of its facts whose constraint a response satisfies."""
