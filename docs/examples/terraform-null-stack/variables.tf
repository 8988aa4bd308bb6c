variable "namespace" {
  description = "Whose it is: an organisation or a team, such as `acme`."
  type        = string
  nullable    = false
}

variable "stage" {
  description = "Where it runs, such as `staging` or `production`."
  type        = string
  nullable    = false
}

variable "name" {
  description = "What it is, such as `shop`."
  type        = string
  nullable    = false
}

variable "components" {
  description = "The parts that it consists of, such as `[\"api\", \"worker\"]`."
  type        = set(string)
  nullable    = false

  validation {
    condition     = length(var.components) > 0
    error_message = "A stack has at least one component."
  }
}
